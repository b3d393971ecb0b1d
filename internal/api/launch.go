package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// MaxLaunchMessage bounds one launch message in bytes. A real one has less than two thousand.
const MaxLaunchMessage = 32 << 10

// Bounds of the names in a launch message from the runner's machine. No secret has a longer reference.
const (
	MaxSecretRefs = 80
	MaxSecretRef  = 160
	MaxStateOlds  = 8
)

// LaunchMessage is the message that the poller puts into the queue and the dispatcher takes out: everything
// that a launch needs and nothing secret, because the job token is sealed in the ticket.
type LaunchMessage struct {
	task.Needs

	Ticket        string             `json:"ticket"`
	Job           string             `json:"job"` // the workflow's id
	Type          workflow.Type      `json:"type"`
	Operation     workflow.Operation `json:"operation,omitempty"`
	ReadsState    bool               `json:"reads_state,omitempty"` // it changes no state
	SentAtMS      int64              `json:"sent_at_ms"`            // the sender's clock, milliseconds since 1970
	LaunchSeconds float64            `json:"launch_seconds"`        // rest of the launch window at that time
	// Placement is where the sender tries the launch itself, once, with these very bytes; the receiver of the message
	// begins there. Empty if the sender does not try.
	Placement string `json:"placement,omitempty"`
}

// NewLaunchMessage describes the launch of a claimed job.
func NewLaunchMessage(job Job, ticket string, now time.Time) LaunchMessage {
	return LaunchMessage{
		Needs: job.Needs, Ticket: ticket, Job: job.ID, Type: job.Type, Operation: job.Operation,
		ReadsState: !workflow.ChangesState(job.Type, job.Operation), SentAtMS: now.UnixMilli(), LaunchSeconds: job.LaunchSeconds,
	}
}

// LogValue keeps the ticket out of logs: it holds no readable secret, and is long.
func (m LaunchMessage) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job_id", m.Job), slog.Int("attempt", m.Attempt))
}

// Age is how long ago the message was sent. A receiver whose clock is behind sees 0.
func (m LaunchMessage) Age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMilli(m.SentAtMS)))
}

// Window is the rest of the launch window; it is negative once that has passed.
func (m LaunchMessage) Window(now time.Time) time.Duration {
	return Seconds(m.LaunchSeconds) - m.Age(now)
}

// StateDirs are the directories of states that its task is given. A message that does not say where the state is
// is an ErrInvalid.
func (m LaunchMessage) StateDirs() (dirs task.StateDirs, err error) {
	key := m.StateKey
	dirs.Required = m.StateKind == StateDirectory
	if dirs.Required && key == "" {
		return dirs, workflow.Refuse(workflow.ErrInvalid, "state_key", "is needed with state_kind directory")
	}
	for _, k := range append([]string{key}, m.StateOlds...) {
		if k != "" && (!workflow.IsPathPart(m.Organization) || !workflow.IsPathPart(k)) {
			return dirs, workflow.Refuse(workflow.ErrInvalid, "state_key", "organization %q and place %q do not name a directory for the state", m.Organization, k)
		}
	}
	if key != "" {
		dirs.Own = path.Join(m.Organization, key)
	}
	for _, old := range m.StateOlds {
		if old != key {
			dirs.Olds = append(dirs.Olds, path.Join(m.Organization, old))
		}
	}
	return dirs, nil
}

// Encode writes the message, refusing one that DecodeLaunchMessage would refuse.
func (m LaunchMessage) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode launch message of job %s: %w", m.Job, err)
	}
	if body = text.EscapeJSON(body); len(body) > MaxLaunchMessage {
		return nil, tooLongLaunch(len(body))
	}
	return body, nil
}

// DecodeLaunchMessage reads one message. It takes nothing that is beyond a bound, of a wrong type,
// incomplete, or followed by something else. A field that it does not know is passed over, so that
// a dispatcher can run beside a newer poller.
func DecodeLaunchMessage(body []byte) (LaunchMessage, error) {
	if len(body) > MaxLaunchMessage {
		return LaunchMessage{}, tooLongLaunch(len(body))
	}
	var m LaunchMessage
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&m); err != nil {
		return LaunchMessage{}, workflow.Refuse(workflow.ErrInvalid, "", "the launch message is not the JSON that was expected: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return LaunchMessage{}, workflow.Refuse(workflow.ErrInvalid, "", "the launch message is followed by something else")
	}
	if err := m.check(); err != nil {
		return LaunchMessage{}, err
	}
	return m, nil
}

func tooLongLaunch(n int) error {
	return workflow.Refuse(workflow.ErrTooLarge, "", "the launch message has %d bytes; at most %d are allowed", n, MaxLaunchMessage)
}

func badLaunch(field, format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
}

func (m LaunchMessage) check() error {
	return cmp.Or(m.checkTexts(), m.checkLists(), m.checkNumbers())
}

func (m LaunchMessage) checkTexts() error {
	for _, f := range []struct {
		name, value       string
		shortest, longest int
	}{
		{"ticket", m.Ticket, 1, 2 << 10},
		{"job", m.Job, 1, 128},
		{"organization", m.Organization, 1, 128},
		{"workspace", m.Workspace, 1, 128},
		{"pool", m.Pool, 1, 128},
		{"size", m.Size, 0, 64},
		{"state_kind", m.StateKind, 0, 32},
		{"state_key", m.StateKey, 0, 64},
		{"operation", string(m.Operation), 0, 32},
		{"placement", m.Placement, 0, 128},
		{"type", string(m.Type), 1, 32},
	} {
		if len(f.value) < f.shortest || len(f.value) > f.longest {
			return badLaunch(f.name, "has %d bytes; it needs %d to %d", len(f.value), f.shortest, f.longest)
		}
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return badLaunch(f.name, "holds a byte outside printable ASCII")
		}
	}
	if len(m.SourceDirectory) > 4<<10 || strings.ContainsRune(m.SourceDirectory, 0) {
		return badLaunch("source_directory", "is not a path")
	}
	if len(m.SourcePath) > 1000 || strings.ContainsRune(m.SourcePath, 0) {
		return badLaunch("source_path", "is not a path")
	}
	return nil
}

func (m LaunchMessage) checkLists() error {
	if len(m.StateOlds) > MaxStateOlds {
		return badLaunch("state_olds", "are %d; at most %d are looked at", len(m.StateOlds), MaxStateOlds)
	}
	if len(m.SecretRefs) > MaxSecretRefs {
		return badLaunch("secret_refs", "are %d; at most %d are handed over", len(m.SecretRefs), MaxSecretRefs)
	}
	for _, ref := range m.SecretRefs {
		if len(ref) > MaxSecretRef {
			return badLaunch("secret_refs", "one has %d bytes; at most %d are allowed", len(ref), MaxSecretRef)
		}
	}
	return nil
}

func (m LaunchMessage) checkNumbers() error {
	const tenYears = 10 * 365 * 24 * 3600
	switch {
	case m.Attempt < 1 || m.Attempt > 1<<20:
		return badLaunch("attempt", "%d is not the number of an attempt", m.Attempt)
	case !(m.MaxRuntimeSeconds > 0 && m.MaxRuntimeSeconds <= tenYears):
		return badLaunch("max_runtime_seconds", "%g is not a run time", m.MaxRuntimeSeconds)
	case !(m.LaunchSeconds >= -tenYears && m.LaunchSeconds <= tenYears):
		return badLaunch("launch_seconds", "%g is not a launch window", m.LaunchSeconds)
	case m.SentAtMS < 0 || m.SentAtMS > 1<<53:
		return badLaunch("sent_at_ms", "%d is not a time", m.SentAtMS)
	}
	return nil
}

// MaxReportText is how many bytes of text a report about a launch or a task takes.
const MaxReportText = 1000

// ReportText shortens a text to the limit of a report, at a character's border.
func ReportText(s string) string { return text.Head(s, MaxReportText) }

// Seconds converts a number of seconds from the wire to a duration, within the range that a duration
// can hold.
func Seconds(s float64) time.Duration {
	const limit = float64(1<<62) / float64(time.Second)
	switch {
	case s != s: // not a number
		return 0
	case s > limit:
		return 1 << 62
	case s < -limit:
		return -(1 << 62)
	}
	return time.Duration(s * float64(time.Second))
}
