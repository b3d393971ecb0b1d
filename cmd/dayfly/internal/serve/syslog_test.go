package serve

import (
	"log/slog"
	"log/syslog"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestSyslog_EachRecordHasTheSeverityOfItsLevel(t *testing.T) {
	address := filepath.Join(t.TempDir(), "log")
	var lc net.ListenConfig
	conn, err := lc.ListenPacket(t.Context(), "unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	dial := func() (*syslog.Writer, error) { return syslog.Dial("unixgram", address, syslog.LOG_DAEMON, "dayfly") }
	handler, err := syslogHandler(dial, slog.LevelDebug)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(handler).With("stage", "poller")
	for severity, write := range map[syslog.Priority]func(string, ...any){syslog.LOG_DEBUG: log.Debug, syslog.LOG_INFO: log.Info, syslog.LOG_WARNING: log.Warn, syslog.LOG_ERR: log.Error} {
		write("it happened", "n", 1)
		b := make([]byte, 1000)
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		want := "<" + string(rune('0'+(syslog.LOG_DAEMON|severity)/10)) + string(rune('0'+(syslog.LOG_DAEMON|severity)%10)) + ">"
		if got := string(b[:n]); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `: msg="it happened" stage=poller n=1`+"\n") {
			t.Errorf("got %q, want it to begin with %s", got, want)
		}
	}
	if _, err := syslogHandler(func() (*syslog.Writer, error) { return syslog.Dial("unixgram", address+"x", syslog.LOG_DAEMON, "") }, 0); err == nil || !strings.Contains(err.Error(), "leave syslog out") {
		t.Errorf("without a syslog: got %v", err)
	}
}
