package child

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// Stat are the fields of /proc/PID/stat that are used.
type Stat struct {
	PID, Parent, Group, Session int
	Start                       uint64 // when it began, in clock ticks since the machine's boot
	state                       byte
	held                        uint64 // signals that it blocks, ignores or catches, as far as the first 31
}

// Alive reports whether the process runs: it is neither a zombie nor about to be one.
func (s Stat) Alive() bool { return s.state != 'Z' && s.state != 'X' && s.state != 'x' }

// Processes lists the numbers of all processes that can be seen.
func Processes() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

// ReadStat looks at a process; fs.ErrNotExist means that it is gone.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, syscall.ESRCH) {
		return Stat{}, fs.ErrNotExist
	}
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	s.PID = pid
	return s, nil
}

func parseStat(b []byte) (Stat, error) {
	// The second field is the program's name in parentheses. It may hold anything, also parentheses.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, errors.New("no name")
	}
	f := bytes.Fields(b[i+1:]) // the first is the third of them all
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, errors.New("too few fields")
	}
	s := Stat{state: f[0][0]}
	var err error
	for i, to := range []*int{&s.Parent, &s.Group, &s.Session} {
		if *to, err = strconv.Atoi(string(f[1+i])); err != nil {
			return Stat{}, fmt.Errorf("field %d is not a number", 4+i)
		}
	}
	if s.Start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return Stat{}, errors.New("no start time")
	}
	for _, signals := range f[min(29, len(f)):min(32, len(f))] {
		bits, err := strconv.ParseUint(string(signals), 10, 64)
		if err != nil {
			return Stat{}, errors.New("a set of signals is not a number")
		}
		s.held |= bits
	}
	return s, nil
}

// moment is a point in time to which the beginning of a process can be compared.
type moment struct {
	tick uint64 // as Stat.Start counts
	last int    // the process or thread that was started last; within a tick their numbers rise
}

// missed decides whether a member of a group missed an interrupt: it was there, would have died of it, and lives. at is
// when the interrupt was sent. Processes that start later, even at once, may help others to end in good order.
//
// own is the Stat of this process. A Go program catches signals: if it seems to catch none, the system does not
// report the signals of any process, like gVisor, and no process is known to have missed one.
func (s Stat) missed(group int, at moment, own Stat) bool {
	const interrupt = 1 << (syscall.SIGINT - 1)
	there := s.Start < at.tick || s.Start == at.tick && s.PID <= at.last
	return own.held != 0 && s.Group == group && s.Alive() && there && s.held&interrupt == 0
}

// interruptMissed sends SIGINT to the members of a group that missed it.
func interruptMissed(group int, at moment) {
	own, _ := ReadStat(os.Getpid()) // unknown, it catches nothing
	for _, s := range processes(func(s Stat) bool { return s.missed(group, at, own) }) {
		p, err := os.FindProcess(s.PID) // it holds this process, even if its number is used again
		if err != nil {
			continue
		}
		if again, err := ReadStat(s.PID); err == nil && again.Start == s.Start && again.missed(group, at, own) {
			_ = p.Signal(syscall.SIGINT)
		}
		_ = p.Release()
	}
}

// now is this moment. /proc/uptime has the clock of Stat.Start, in hundredths of a second, as ticks are on every machine
// (USER_HZ), and the last field of /proc/loadavg is the number that was given last. (proc_uptime(5), proc_loadavg(5).)
// Where they cannot be read, nothing began before: nothing is interrupted again.
func now() (m moment) {
	b, _ := os.ReadFile("/proc/loadavg")
	if f := bytes.Fields(b); len(f) == 5 {
		m.last, _ = strconv.Atoi(string(f[4]))
	}
	b, _ = os.ReadFile("/proc/uptime")
	up, _, _ := bytes.Cut(b, []byte(" "))
	m.tick, _ = strconv.ParseUint(string(bytes.Replace(up, []byte("."), nil, 1)), 10, 64)
	return m
}

// processes returns every process that can be seen and for which ok is true.
func processes(ok func(Stat) bool) []Stat {
	pids, _ := Processes()
	var out []Stat
	for _, pid := range pids {
		if s, err := ReadStat(pid); err == nil && ok(s) {
			out = append(out, s)
		}
	}
	return out
}
