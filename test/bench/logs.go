package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// logs measures how much log passes the masks with 50 secrets, by the processor time that it takes.
func logs(ctx context.Context, b *bench) error {
	const secrets = 50
	size := 200 << 20
	if b.quick {
		size = 60 << 20
	}
	b.out.Heading("Masked log, %d secrets, one line in 500 with one of them", secrets)
	random := rand.New(rand.NewPCG(1, 2))
	var set mask.Set
	values := make([]string, secrets)
	for i := range values {
		values[i] = secret(random, i)
	}
	set.Add(values...)
	for _, kind := range []struct {
		name string
		text []byte
		aim  bool
	}{
		{"plan output", sampleLog(random, values, planLine), true},
		{"JSON with escapes", sampleLog(random, values, jsonLine), false},
	} {
		var lines, hidden int
		each := func(text string, _ bool) {
			lines++
			if strings.Contains(text, mask.Marker) {
				hidden++
			}
		}
		speed, err := throughput(ctx, kind.text, size, func() *mask.Writer { return mask.NewWriter(&set, each) })
		if err != nil {
			return err
		}
		if hidden == 0 {
			return fmt.Errorf("nothing was hidden in %d lines", lines)
		}
		b.out.Line("%-18s %6.0f MB/s per core through the masks", kind.name, speed)
		if kind.aim {
			b.out.Judge(speed >= 200, "masked log", fmt.Sprintf("%.0f MB/s per core", speed), ">= 200 MB/s")
		}
		sent, err := streamed(ctx, &set, kind.text, size/4)
		if err != nil {
			return err
		}
		b.out.Line("%-18s %6.0f MB/s per core through masks and batches, encoded", "", sent)
	}
	return nil
}

// throughput writes text again and again until size is reached, in pieces as a pipe gives them.
func throughput(ctx context.Context, text []byte, size int, writer func() *mask.Writer) (float64, error) {
	const piece = 32 << 10
	w := writer()
	_, _ = w.Write(text) // the first time warms up
	runtime.GC()
	began, _ := cpu()
	n := 0
	for n < size {
		for p := range bytesOf(text, piece) {
			_, _ = w.Write(p)
			n += len(p)
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	w.Flush()
	ended, _ := cpu()
	return float64(n) / 1e6 / (ended - began).Seconds(), nil
}

func bytesOf(text []byte, piece int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			n := min(piece, len(text))
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// streamed measures the way from the engine's pipe to the body of a request.
func streamed(ctx context.Context, set *mask.Set, text []byte, size int) (float64, error) {
	var body bytes.Buffer
	s := logstream.New(logstream.Config{Send: func(_ context.Context, in api.Logs) (int64, error) {
		body.Reset()
		err := json.NewEncoder(&body).Encode(in)
		return in.First + int64(len(in.Lines)), err
	}})
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(sending) }) // what it could not send, Flush tells
	n := 0
	w := mask.NewWriter(set, func(line string, more bool) { s.Add("plan", line, more) })
	began, _ := cpu()
	for n < size {
		for p := range bytesOf(text, 1<<20) {
			_, _ = w.Write(p)
			n += len(p)
			if err := s.Flush(ctx); err != nil { // or most of it would wait on disk
				return 0, err
			}
		}
	}
	ended, _ := cpu()
	cancel()
	wg.Wait()
	return float64(n) / 1e6 / (ended - began).Seconds(), nil
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

func jsonLine(random *rand.Rand, secret string) string {
	text, _ := json.Marshal(map[string]any{ // of texts alone: it cannot fail
		"@level": "info", "@message": "aws_instance.web: \"Plan\" to update\tin \"eu-west-1\"\n" + secret,
		"@timestamp": time.Unix(int64(random.IntN(1<<30)), 0).UTC(), "hook": map[string]any{"resource": map[string]any{"addr": fmt.Sprintf("aws_instance.web[\"%d\"]", random.IntN(1000))}},
	})
	return string(text)
}
