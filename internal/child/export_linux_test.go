package child

// ParseStat reads a line of /proc/PID/stat.
func ParseStat(b []byte) (state byte, session int, start uint64, err error) {
	s, err := parseStat(b)
	return s.state, s.Session, s.Start, err
}
