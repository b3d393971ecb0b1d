package remains

import (
	"errors"
	"io/fs"
	"os"
)

var errNoCgroups = errors.New("this system has no cgroups")

// OpenCgroups refuses: this system has none.
func OpenCgroups(string) (string, error) { return "", errNoCgroups }

// MakeCgroup refuses: this system has none.
func MakeCgroup(string, Limits) (*os.File, error) { return nil, errNoCgroups }

// KillCgroup finds none.
func KillCgroup(string) (int, error) { return 0, fs.ErrNotExist }

// ListCgroups finds none.
func ListCgroups(string) []string { return nil }

// RemoveCgroup finds none.
func RemoveCgroup(string) error { return nil }
