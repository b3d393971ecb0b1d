package forward_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob/s3"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/forward"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

var _ controlplane.Forwarder = (*forward.Place)(nil)

func open(t *testing.T, address string) *forward.Place {
	t.Helper()
	p, err := forward.To[*s3.Store]("--audit-forward", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func part(n int64) ([]api.AuditEvent, api.Seal) {
	e := api.AuditEvent{ID: fmt.Sprint(n), Actor: "ci", Action: "test", Detail: "two\nlines"}
	s := api.Seal{Number: n, Count: 1, To: e.ID, At: time.Date(2026, 5, 4, 12, 0, 0, 1000, time.UTC)}
	s.Digest = s.Sum("default", []api.AuditEvent{e})
	return []api.AuditEvent{e}, s
}

// numbers are the seals and entries of lines, in their order; an entry is negative.
func numbers(t *testing.T, lines string) (out string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var l api.AuditLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Organization != "default" {
			t.Fatalf("line %q: %v", line, err)
		}
		if l.Entry != nil {
			out += "e" + l.Entry.ID + " "
		} else {
			out += fmt.Sprintf("s%d ", l.Seal.Number)
		}
	}
	return out
}

// O14: a file has whole parts, also after a crash in the middle of one at any byte.
func TestFile_GoesOnBehindTheLastWholePart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	to := open(t, "file://"+name)
	send := func(n int64) {
		t.Helper()
		entries, seal := part(n)
		if err := to.Forward(t.Context(), "default", entries, seal); err != nil {
			t.Fatal(err)
		}
	}
	send(1)
	one, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	send(2)
	two, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for torn := range len(two) {
		if err := os.WriteFile(name, two[:torn], 0o600); err != nil {
			t.Fatal(err)
		}
		if torn < len(one) {
			send(1)
		}
		send(2)
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, two) {
			t.Fatalf("torn at %d: %q, %v", torn, got, err)
		}
	}
	send(3)
	if got, err := os.ReadFile(name); err != nil || numbers(t, string(got)) != "e1 s1 e2 s2 e3 s3 " {
		t.Errorf("%s, %v", numbers(t, string(got)), err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestFile_OfSomebodyElseIsNotTouched(t *testing.T) {
	for _, text := range []string{"hello\n", "x", "{}\n", `{"organization":"default"}` + "\n", "{\"level\":\"INFO\"}\n"} {
		name := filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, seal := part(1)
		err := open(t, "file://"+name).Forward(t.Context(), "default", entries, seal)
		got, _ := os.ReadFile(name)
		if err == nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}

// O14: each line is one message of RFC 5424, with its length before it over a stream.
func TestSyslog_SendsMessagesOfRFC5424(t *testing.T) {
	entries, seal := part(7)
	parse := func(m string) api.AuditLine {
		t.Helper()
		fields := strings.SplitN(m, " ", 8)
		var l api.AuditLine
		if len(fields) != 8 || fields[0] != "<110>1" || fields[1] != "2026-05-04T12:00:00.000001Z" || fields[3] != "dayfly" || fields[4] != "-" || fields[5] != "audit" || fields[6] != "-" {
			t.Fatalf("message %q", m)
		}
		if err := json.Unmarshal([]byte(fields[7]), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	check := func(name string, messages []string) {
		t.Helper()
		if len(messages) != 2 || parse(messages[0]).Entry.Detail != "two\nlines" || parse(messages[1]).Seal.Digest != seal.Digest {
			t.Errorf("%s: %q", name, messages)
		}
	}
	for _, network := range []string{"udp", "unixgram"} {
		address, scheme := "127.0.0.1:0", "syslog+udp://"
		if network == "unixgram" {
			address, scheme = filepath.Join(t.TempDir(), "log"), "syslog+unix://"
		}
		l, err := (&net.ListenConfig{}).ListenPacket(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		if err := open(t, scheme+l.LocalAddr().String()).Forward(t.Context(), "default", entries, seal); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 2 {
			b := make([]byte, 64<<10)
			n, _, err := l.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(b[:n]))
		}
		check(network, got)
		_ = l.Close()
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	stream := make(chan string)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			close(stream)
			return
		}
		all, _ := io.ReadAll(conn)
		stream <- string(all)
	}()
	to := open(t, "syslog+tcp://"+l.Addr().String())
	if err := to.Forward(t.Context(), "default", entries, seal); err != nil {
		t.Fatal(err)
	}
	var got []string
	for rest := <-stream; rest != ""; {
		var n int
		if _, err := fmt.Sscanf(rest, "%d ", &n); err != nil {
			t.Fatal(err)
		}
		_, rest, _ = strings.Cut(rest, " ")
		got, rest = append(got, rest[:n]), rest[n:]
	}
	check("tcp", got)
	_ = l.Close()
	if err := to.Forward(t.Context(), "default", entries, seal); err == nil {
		t.Error("a syslog that is down took a part")
	}
}

// objects is a place of what is written once.
type objects map[string]string

func (o objects) Put(_ context.Context, name string, body []byte) error {
	o[name] = string(body)
	return nil
}

func TestBucket_HasAnObjectForEachPart(t *testing.T) {
	kept := objects{}
	for _, address := range []string{"s3://bucket", "s3://bucket/a/b/"} {
		to, err := forward.To("x", address, func(name string) (objects, error) { return kept, nil })
		if err != nil {
			t.Fatal(err)
		}
		entries, seal := part(7)
		if err := to.Forward(t.Context(), "default", entries, seal); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"default/000000000007", "a/b/default/000000000007"} {
		if numbers(t, kept[name]) != "e7 s7 " {
			t.Errorf("%s has %q", name, kept[name])
		}
	}
}

// O14: the bucket's own rules hold: an object is put once, with its checksum.
func TestBucket_OfS3KeepsWhatCameFirst(t *testing.T) {
	table := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &fake.Service{}}}))
	t.Cleanup(server.Close)
	cfg := awsim.ClientConfig(server.URL, table.User("function"))
	if err := awsim.MakeBucket(t.Context(), cfg, "trail"); err != nil {
		t.Fatal(err)
	}
	to, err := forward.To("x", "s3://trail/dayfly", func(name string) (*s3.Store, error) { return s3.New(cfg, name), nil })
	if err != nil {
		t.Fatal(err)
	}
	entries, seal := part(7)
	for range 2 {
		if err := to.Forward(t.Context(), "default", entries, seal); err != nil {
			t.Fatal(err)
		}
		entries[0].Actor = "changed since"
	}
	got, err := s3.New(cfg, "trail").Get(t.Context(), "dayfly/default/000000000007")
	if err != nil || numbers(t, string(got)) != "e7 s7 " || strings.Contains(string(got), "changed since") {
		t.Errorf("got %s, %v", got, err)
	}
	server.Close()
	if err := to.Forward(t.Context(), "default", entries, seal); err == nil {
		t.Error("a bucket that is down took a part")
	}
}

func TestTo_RefusesOtherAddresses(t *testing.T) {
	for _, address := range []string{"", "x", "/var/log/audit", "file:x", "file://host/x", "file:///x/", "syslog://x:1", "syslog+tcp://x", "syslog+udp://:514", "syslog+tls://u:p@x:1", "syslog+unix://dev/log", "s3://bucket", "https://x/y", "file:///x?a=b", "%"} {
		if _, err := forward.To[objects]("--audit-forward", address, nil); err == nil || !strings.Contains(err.Error(), "want ") || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
