package cleanup

import (
	"errors"
	"io/fs"
	"os"
)

var errNoCgroups = errors.New("this system has no cgroups")

// OpenCgroups returns an error: this system has no cgroups.
func OpenCgroups(string) (string, error) { return "", errNoCgroups }

// Controllers returns nothing.
func Controllers(string) []string { return nil }

// MakeCgroup returns an error: this system has no cgroups.
func MakeCgroup(string, Limits) (*os.File, error) { return nil, errNoCgroups }

// KillCgroup returns fs.ErrNotExist.
func KillCgroup(string) (int, error) { return 0, fs.ErrNotExist }

// ListCgroups returns nothing.
func ListCgroups(string) []string { return nil }

// RemoveCgroup does nothing.
func RemoveCgroup(string) error { return nil }
