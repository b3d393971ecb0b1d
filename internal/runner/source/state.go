package source

import (
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Files that an engine writes beside the code, below the root module. Fetch sets them aside.
const (
	// stateFile is the state of the default workspace; stateFolder has those of the others, a directory each.
	stateFile   = "terraform.tfstate"
	stateFolder = "terraform.tfstate.d"
	// backendFile says which backend was set up, EnvironmentFile which workspace was selected. Only a directory
	// source has them.
	backendFile     = ".terraform/terraform.tfstate"
	EnvironmentFile = ".terraform/environment"
)

// fate is how a file of a source is treated.
type fate int

const (
	kept    fate = iota // it is part of the code
	aside               // it is kept apart, where the engine does not find it
	hollow              // an empty file is kept apart in its place, which says that it was there
	dropped             // it is left out
)

// ofDirectory returns the fate of the files of a directory with the root module top: state never gets into a run by
// itself. Only state of the root module is set aside.
func ofDirectory(top string) func(name string) fate {
	prefix := prefixOf(top)
	return func(name string) fate {
		name, own := strings.CutPrefix(name, prefix)
		switch {
		case own && (name == backendFile || name == EnvironmentFile || strings.HasSuffix(name, ".tfstate")):
			return aside
		case own && strings.HasPrefix(name, stateFolder+"/"),
			strings.HasSuffix(name, ".tfstate"), strings.HasSuffix(name, ".tfstate.backup"), strings.HasSuffix(name, ".tfstate.lock.info"):
			return dropped
		}
		return kept
	}
}

// handedOn returns the fate of the files of a directory in the copy for a container, where the engine can read
// everything. State below another directory than that of the root module may be another workspace's.
func handedOn(top string) func(name string) fate {
	direct := ofDirectory(top)
	return func(name string) fate {
		fate := direct(name)
		name = strings.TrimPrefix(name, prefixOf(top))
		if fate != aside || !strings.Contains(name, "/") || name == backendFile || name == EnvironmentFile {
			return fate
		}
		if matched, _ := path.Match(stateFolder+"/*/"+stateFile, name); matched {
			return aside
		}
		return hollow
	}
}

// prefixOf is the prefix of the names of all files in a directory of a source.
func prefixOf(top string) string {
	if top = path.Clean(top); top == "." {
		return ""
	}
	return top + "/"
}

// ofRepository does the same for a repository. Only files that an engine would take for its own state are taken out;
// the rest may be data.
func ofRepository(top string) func(name string) fate {
	prefix := prefixOf(top)
	return func(name string) fate {
		name, own := strings.CutPrefix(name, prefix)
		if own && (name == stateFile || strings.HasPrefix(name, stateFolder+"/")) {
			return aside
		}
		return kept
	}
}

// setAside writes a file apart from the code, for the runner alone.
func (t *tree) setAside(name string, content io.Reader) error {
	if t.aside == "" {
		return t.copy(io.Discard, content)
	}
	if err := os.MkdirAll(t.aside, 0o700); err != nil {
		return writing(name, err)
	}
	root, err := os.OpenRoot(t.aside)
	if err != nil {
		return fmt.Errorf("open directory for states: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return writing(name, err)
	}
	return t.put(root, name, 0o600, content, nil)
}

// note adds an entry to the digest. The separator of its parts is in no name.
func (t *tree) note(kind byte, name string, perm fs.FileMode, more string) {
	if t.digest != nil {
		fmt.Fprintf(t.digest, "%c%03o%s\x00%s\x00", kind, perm&0o111, name, more)
	}
}

// sum is the digest in hexadecimal digits; empty where none was made.
func (t *tree) sum() string {
	if t.digest == nil {
		return ""
	}
	return hex.EncodeToString(t.digest.Sum(nil))
}
