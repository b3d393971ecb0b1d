package process

import "github.com/dayfly-dev/dayfly/internal/launcher/taskdir"

// What the tests outside look at.
var (
	Classify = refusal
	Keep     = taskdir.Keep
)

// Tail returns what a tail kept when it was closed, with its other end still open.
func Tail(said string) (string, error) {
	t, w, err := newTail()
	if err != nil {
		return "", err
	}
	defer func() { _ = w.Close() }()
	if _, err := w.WriteString(said); err != nil {
		return "", err
	}
	t.close()
	return t.text(), nil
}

// ParseRecord reads a record and tells what could send a kill or a removal astray.
func ParseRecord(b []byte) (ref, cgroup, stateDir string, err error) {
	r, err := parseRecord(b)
	return r.Ref, r.Cgroup, r.StateDir, err
}
