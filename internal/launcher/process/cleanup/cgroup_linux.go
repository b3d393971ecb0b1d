package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// OpenCgroups makes a directory for the cgroups of tasks, below the one that this process is in.
func OpenCgroups(name string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own, err := ownCgroup(mounts, self)
	if err != nil {
		return "", err
	}
	base := filepath.Join(own, name)
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all of that file system is
		return "", err
	}
	// Limits need their controllers to be delegated to us. Each is enabled by itself, so that a missing one does
	// not prevent the others.
	for _, c := range []string{"+memory", "+pids", "+cpu"} {
		_ = writeCgroup(base, "cgroup.subtree_control", c)
	}
	return base, nil
}

// Controllers returns the names of the controllers that the cgroups in one have. Without a controller, a cgroup does
// not have its limits.
func Controllers(path string) []string {
	b, _ := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
	return strings.Fields(string(b))
}

// ownCgroup finds the directory of this process's cgroup v2 in the mounts.
func ownCgroup(mountinfo, selfCgroup []byte) (string, error) {
	var own string
	found := false
	for line := range strings.Lines(string(selfCgroup)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			// One outside of this process's namespace begins with /.. and cannot be seen.
			own, found = path, filepath.IsAbs(path) && filepath.Clean(path) == path
		}
	}
	if !found {
		return "", errors.New("this system has no cgroup v2")
	}
	for line := range strings.Lines(string(mountinfo)) {
		// 36 35 98:0 /root /mount/point options ... - type source options
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || dash+1 >= len(f) || f[dash+1] != "cgroup2" {
			continue
		}
		root, point := unescape(f[3]), unescape(f[4])
		rel, err := filepath.Rel(root, own)
		if err != nil || !filepath.IsLocal(rel) {
			continue // it shows another part of the tree
		}
		return filepath.Join(point, rel), nil
	}
	return "", errors.New("no mount shows this process's cgroup")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// writeCgroup writes to a control file. It does not create it: a missing file means that the feature is missing.
func writeCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// MakeCgroup makes a cgroup for a task, with the limits whose controllers are available.
func MakeCgroup(path string, limits Limits) (*os.File, error) {
	if err := os.Mkdir(path, 0o755); err != nil { //nolint:gosec // as all of that file system is
		return nil, err
	}
	const period = 100_000 // microseconds
	for file, value := range map[string]string{
		"memory.max": strconv.FormatInt(limits.Memory, 10),
		"pids.max":   strconv.Itoa(limits.PIDs),
		"cpu.max":    fmt.Sprintf("%d %d", limits.MilliCPU*period/1000, period),
	} {
		if err := writeCgroup(path, file, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("set %s: %w", file, err)
		}
	}
	return os.Open(path)
}

// KillCgroup kills everything in a cgroup and below it, and returns a lower bound of how many processes
// were left. fs.ErrNotExist means that there is no such cgroup.
func KillCgroup(path string) (int, error) {
	populated, err := cgroupPopulated(path)
	if err != nil || !populated {
		return 0, err
	}
	err = writeCgroup(path, "cgroup.kill", "1")
	if errors.Is(err, fs.ErrNotExist) {
		return 1, killListed(path) // a kernel before 5.14
	}
	return 1, err
}

func cgroupPopulated(path string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
	if errors.Is(err, syscall.ENODEV) { // removed while it was read
		return false, fs.ErrNotExist
	}
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("populated ")); ok {
			return string(bytes.TrimSpace(v)) != "0", nil
		}
	}
	return false, fmt.Errorf("cgroup %s does not say whether it is populated", path)
}

// killListed kills each process that is listed in a cgroup or below it.
func killListed(path string) error {
	return eachCgroup(path, func(dir string) error {
		pids, err := listed(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			err := killVerified(pid, func() (bool, error) {
				now, err := listed(dir)
				return slices.Contains(now, pid), err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func listed(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// eachCgroup visits a cgroup and those below it, the deepest first.
func eachCgroup(path string, visit func(dir string) error) error {
	for _, name := range ListCgroups(path) {
		if err := eachCgroup(filepath.Join(path, name), visit); err != nil {
			return err
		}
	}
	return visit(path)
}

// ListCgroups returns the names of the cgroups in one.
func ListCgroups(path string) []string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// RemoveCgroup removes a cgroup and those below it. None of them may have a process.
func RemoveCgroup(path string) error {
	return eachCgroup(path, func(dir string) error {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
