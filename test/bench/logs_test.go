package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// BenchmarkLogs measures how much log passes the masks with 50 secrets, of which one line in 500 has one, by the
// processor time that it takes.
func BenchmarkLogs(b *testing.B) {
	size := quick(200, 60) << 20
	random := rand.New(rand.NewPCG(1, 2))
	var set mask.Set
	values := make([]string, 50)
	for i := range values {
		values[i] = secret(random, i)
	}
	set.Add(values...)
	for _, kind := range []struct {
		name string
		line func(*rand.Rand, string) string
		aim  bool
	}{
		{"plan output", planLine, true}, {"plan output in colours", colouredLine, false},
		{"text with &", andLine, false}, {"JSON with escapes", jsonLine, false},
	} {
		text := sampleLog(random, values, kind.line)
		b.Run(kind.name, func(b *testing.B) {
			hidden := 0
			w := mask.NewWriter(&set, func(text string, _ bool) {
				if strings.Contains(text, mask.Marker) {
					hidden++
				}
			})
			_, _ = w.Write(text) // the first time warms up
			runtime.GC()
			speed := throughput(text, 32<<10, size, func(p []byte) { _, _ = w.Write(p) }) // in pieces as a pipe gives them
			w.Flush()
			if hidden == 0 {
				b.Fatal("nothing was hidden")
			}
			b.Logf("%.0f MB/s per core through the masks", speed)
			sent := streamed(b, &set, text, size/4)
			b.Logf("%.0f MB/s per core through masks and batches, encoded", sent)
			if kind.aim {
				judge(b, speed >= 200, "masked log", fmt.Sprintf("%.0f MB/s per core", speed), ">= 200 MB/s")
			}
			metric(b, speed, "masked-MB/s")
			metric(b, sent, "sent-MB/s")
		})
	}
}

// throughput writes text again and again until size is reached, and returns the megabytes in a second of one core.
func throughput(text []byte, piece, size int, write func([]byte)) float64 {
	began, _ := cpu()
	n := 0
	for n < size {
		for rest := text; len(rest) > 0; {
			p := rest[:min(piece, len(rest))]
			write(p)
			rest, n = rest[len(p):], n+len(p)
		}
	}
	ended, _ := cpu()
	return float64(n) / 1e6 / (ended - began).Seconds()
}

// streamed measures the way from the engine's pipe to the body of a request.
func streamed(b *testing.B, set *mask.Set, text []byte, size int) float64 {
	b.Helper()
	var body bytes.Buffer
	s := logstream.New(logstream.Config{Send: func(_ context.Context, in api.Logs) (int64, error) {
		body.Reset()
		err := json.NewEncoder(&body).Encode(in)
		return in.First + int64(len(in.Lines)), err
	}})
	sending, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(sending) }) // Flush reports what was not sent
	defer wg.Wait()
	defer cancel()
	w := mask.NewWriter(set, func(line string, more bool) { s.Add("plan", line, more) })
	return throughput(text, 1<<20, size, func(p []byte) {
		_, _ = w.Write(p)
		check(b, s.Flush(b.Context())) // or most of it would wait on disk
	})
}

// secret makes values of the kinds that there are: passwords, keys, tokens with structure.
func secret(random *rand.Rand, i int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-!$%&"
	n := []int{12, 20, 40, 64, 200}[i%5]
	out := make([]byte, n)
	for j := range out {
		out[j] = letters[random.IntN(len(letters))]
	}
	return []string{"", "ghp_", "AKIA", "postgres://app:", "-----BEGIN KEY-----\n"}[i%5] + string(out)
}

// sampleLog makes some megabytes of lines.
func sampleLog(random *rand.Rand, secrets []string, line func(*rand.Rand, string) string) []byte {
	var out bytes.Buffer
	for i := 0; out.Len() < 4<<20; i++ {
		s := ""
		if i%500 == 0 {
			s = strings.ReplaceAll(secrets[(i/500)%len(secrets)], "\n", " ")
		}
		out.WriteString(line(random, s))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func planLine(random *rand.Rand, secret string) string {
	n := random.IntN(10_000)
	switch random.IntN(5) {
	case 0:
		return fmt.Sprintf("module.network.aws_subnet.private[%d]: Refreshing state... [id=subnet-%08x%s]", n, random.Uint32(), secret)
	case 1:
		return fmt.Sprintf("  # aws_security_group_rule.ingress[%d] will be updated in-place", n) + secret
	case 2:
		return fmt.Sprintf("      ~ description = \"managed by team-%d\" -> \"managed by platform\" %s", n%50, secret)
	case 3:
		return fmt.Sprintf("      + arn         = (known after apply) %s", secret)
	}
	return fmt.Sprintf("aws_iam_role.service[%d]: Still creating... [%dm%02ds elapsed]%s", n, n%60, n%59, secret)
}

// colouredLine is planLine as engines print it to a terminal.
func colouredLine(random *rand.Rand, secret string) string {
	return "\x1b[0m\x1b[1m" + strings.Replace(planLine(random, secret), " ", "\x1b[0m \x1b[32m", 1) + "\x1b[0m\x1b[0m"
}

// andLine is planLine with a character that begins the escapes of HTML.
func andLine(random *rand.Rand, secret string) string {
	return planLine(random, secret) + " && https://example.com/?a=1&b=2"
}

func jsonLine(random *rand.Rand, secret string) string {
	text, _ := json.Marshal(map[string]any{ // of texts alone: it cannot fail
		"@level": "info", "@message": "aws_instance.web: \"Plan\" to update\tin \"eu-west-1\"\n" + secret,
		"@timestamp": time.Unix(int64(random.IntN(1<<30)), 0).UTC(), "hook": map[string]any{"resource": map[string]any{"addr": fmt.Sprintf("aws_instance.web[\"%d\"]", random.IntN(1000))}},
	})
	return string(text)
}
