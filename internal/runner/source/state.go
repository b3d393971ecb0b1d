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

// What an engine leaves beside code in which it ran, below the root module. Fetch sets it aside.
const (
	// stateFile is the state of the default workspace; stateFolder has those of the others, a directory each.
	stateFile   = "terraform.tfstate"
	stateFolder = "terraform.tfstate.d"
	// backendFile says which backend was set up, EnvironmentFile which workspace was selected. Only a directory
	// source has them.
	backendFile     = ".terraform/terraform.tfstate"
	EnvironmentFile = ".terraform/environment"
)

// fate is what becomes of a file of a source.
type fate int

const (
	kept    fate = iota // it is part of the code
	aside               // it is kept apart, where the engine does not find it
	hollow              // an empty file is kept apart in its place, which says that it was there
	dropped             // it is left out
)

// ofDirectory says what becomes of a file of a directory whose root module is the directory top: state never gets into
// a run by itself. What is set aside is the root module's own.
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

// handedOn says what becomes of a file of a directory in the copy that a container gets, where nothing is closed to the
// engine. State below another directory than that of the root module may be another workspace's.
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

// prefixOf is what the names of all that lies in a directory of a source begin with.
func prefixOf(top string) string {
	if top = path.Clean(top); top == "." {
		return ""
	}
	return top + "/"
}

// ofRepository says the same of a repository whose root module is the directory top. Only what an engine would
// take for its own state on sight is taken out; the rest may be data.
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

// note adds an entry to the digest. What stands between its parts is in no name.
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
