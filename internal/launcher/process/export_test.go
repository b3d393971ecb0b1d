package process

// What the tests outside look at.
var (
	Classify = refusal
	Keep     = keep
)

// ParseRecord reads a record and tells what could send a kill or a removal astray.
func ParseRecord(b []byte) (ref, cgroup, stateDir string, err error) {
	r, err := parseRecord(b)
	return r.Ref, r.Cgroup, r.StateDir, err
}
