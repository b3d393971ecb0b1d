package child

import "syscall"

// Missed makes a Stat and decides about it; caught are the signals that this process seems to catch.
func Missed(caught uint64, group, pid int, start uint64, state byte, held ...syscall.Signal) bool {
	s := Stat{PID: pid, Group: group, Start: start, state: state}
	for _, signal := range held {
		s.held |= 1 << (signal - 1)
	}
	return s.missed(7, moment{tick: 100, last: 50}, Stat{held: caught})
}

// ParseStat reads a line of /proc/PID/stat.
func ParseStat(b []byte) (state byte, session int, start uint64, err error) {
	s, err := parseStat(b)
	return s.state, s.Session, s.Start, err
}
