package remains

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Boot names this start of the machine, and of the container in it: the kernel's boot id, and
// when the first process that can be seen began.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	start, err := ProcessStart(1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // hidden from us
		return "", err
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(b)), start), nil
}

// stat is what is read of /proc/PID/stat.
type stat struct {
	state   byte
	session int
	start   uint64 // in clock ticks since the machine's boot
}

func (s stat) alive() bool { return s.state != 'Z' && s.state != 'X' && s.state != 'x' }

func parseStat(b []byte) (stat, error) {
	// The second field is the program's name in parentheses; it may hold anything, these too.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, errors.New("no name")
	}
	f := bytes.Fields(b[i+1:]) // the first is the third of them all
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, errors.New("too few fields")
	}
	s := stat{state: f[0][0]}
	var err error
	if s.session, err = strconv.Atoi(string(f[3])); err != nil {
		return stat{}, errors.New("no session")
	}
	if s.start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return stat{}, errors.New("no start time")
	}
	return s, nil
}

// readStat returns fs.ErrNotExist for a process that is gone.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, syscall.ESRCH) {
		return stat{}, fs.ErrNotExist
	}
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return stat{}, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	return s, nil
}

// ProcessStart is when a process began, in the system's own unit; fs.ErrNotExist means that it is
// gone.
func ProcessStart(pid int) (uint64, error) {
	s, err := readStat(pid)
	return s.start, err
}

// processes lists the numbers of all processes that can be seen.
func processes() ([]int, error) {
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

// killSession kills every living process of a session and returns how many there were.
//
// The session's number stays taken while any process is in it. So where a process has that number
// and began at another time, the session is gone and its number somebody else's. Where no process
// has it, its members are what a dead leader left, ours or, if the number was taken again and left
// by another leader since, somebody else's: these are told apart by their user as well.
func killSession(t Trace) (int, error) {
	switch leader, err := readStat(t.Session); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	case leader.start != t.Start:
		return 0, nil
	}
	pids, err := processes()
	if err != nil {
		return 0, err
	}
	left := 0
	for _, pid := range pids {
		ours, err := t.member(pid)
		if err != nil {
			return left, err
		}
		if !ours {
			continue
		}
		left++
		if err := killVerified(pid, func() (bool, error) { return t.member(pid) }); err != nil {
			return left, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return left, nil
}

// killVerified kills a process if it still is what it was taken for, once its number cannot pass to
// another one any more.
func killVerified(pid int, still func() (bool, error)) error {
	p, err := os.FindProcess(pid) // holds a descriptor of the process
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if ok, err := still(); err != nil || !ok {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (t Trace) member(pid int) (bool, error) {
	s, err := readStat(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if s.session != t.Session || s.start < t.Start || !s.alive() {
		return false, nil
	}
	uid, err := realUser(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && slices.Contains(t.Users, uid), err
}

// realUser is the user that started a process, also where it runs as another.
func realUser(pid int) (uint32, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if errors.Is(err, syscall.ESRCH) {
		return 0, fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(v); len(f) > 0 {
				uid, err := strconv.ParseUint(f[0], 10, 32)
				return uint32(uid), err
			}
		}
	}
	return 0, fmt.Errorf("process %d shows no user", pid)
}
