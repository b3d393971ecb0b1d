package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// Parts of what only an approved run may have: a secret that is not for previews, and the token that reads the source.
var kept = []string{"a-secret-that-no-preview-" + "gets", "the-token-for-the-" + "clone"}

// loot looks, as the engine of a pull request's run, for what is not for such runs: in its environment, its files, other
// processes, and below a directory of Dayfly.
func loot(data string) {
	for _, name := range []string{"HIDDEN", "ATTACK_FORWARDED", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "GIT_ASKPASS", "GIT_CONFIG_PARAMETERS"} {
		_, set := os.LookupEnv(name)
		why := ""
		if set {
			why = name + " is set"
		}
		tried("find "+name, set, why)
	}
	var found []string
	look := func(path string, text []byte) {
		for _, mark := range kept {
			if bytes.Contains(text, []byte(mark)) {
				found = append(found, path)
			}
		}
	}
	done := func(where string) {
		tried("find a secret that is not for previews, or git's token, in "+where, len(found) > 0, strings.Join(found, " "))
		found = nil
	}
	look("own environment", []byte(strings.Join(os.Environ(), "\n")))
	done("the own environment")
	for _, name := range []string{"environ", "cmdline", "fd/*"} {
		all, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, path := range all {
			if info, err := os.Stat(path); name == "fd/*" && (err != nil || !info.Mode().IsRegular()) {
				continue // it may have no end
			}
			if b, err := os.ReadFile(path); err == nil {
				look(path, b)
			}
		}
		done(name + " of every process")
	}
	cwd, _ := os.Getwd()
	for _, dir := range []string{cwd, filepath.Dir(cwd), filepath.Dir(filepath.Dir(cwd)), os.Getenv("HOME"), os.Getenv("TMPDIR"), os.Getenv("DAYFLY_SECRETS_DIR"), data} {
		readable(dir, look)
		done("files below " + dir)
	}
	content(filepath.Join(cwd, ".git", "config"), "git's settings of the source")
	ticket(0, []string{cwd, data})
	environ(runner(), nil)
	mem(runner(), nil)
	fds(runner(), nil)
}
