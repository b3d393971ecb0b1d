package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// Steps of an engine, which hooks and secrets name.
const (
	StepInit   = "init"
	StepPlan   = "plan"
	StepCheck  = "check" // of an approved plan, in place of plan
	StepApply  = "apply"
	StepOutput = "output"
	StepState  = "state" // of operations on the state
	StepRun    = "run"   // of engine command

	// StepPolicy is a step of the runner's own: no hook runs around it, and it gets no secret.
	StepPolicy = "policy"
)

// EngineSteps are the steps of an engine that hooks and secrets can name.
func EngineSteps(engine string) []string {
	switch engine {
	case EngineCommand:
		return []string{StepRun}
	case EngineTerragrunt:
		return []string{StepInit, StepPlan, StepApply, StepOutput}
	case EnginePulumi:
		return []string{StepInit, StepPlan, StepApply, StepOutput, StepState}
	default:
		return []string{StepInit, StepPlan, StepCheck, StepApply, StepOutput, StepState}
	}
}

// Changing reports whether the effects of a step remain if a hook after it fails. The other steps have none.
func Changing(step string) bool {
	return !slices.Contains([]string{StepInit, StepPlan, StepCheck}, step)
}

// MaxHook is the largest script of a hook.
const MaxHook = 64 << 10

// Title is the name of a hook's own step in a run.
func (h Hook) Title() string {
	title := "before " + h.Before
	if h.Before == "" {
		title = "after " + h.After
	}
	if h.Name != "" {
		title += ": " + h.Name
	}
	return text.Cut(title, 64)
}

// Script is the text that a hook runs, and that its digest covers: with \n at the end of each line, and without the
// blanks before it and the empty lines at the end. Both are the same text, so no other script has the digest of an
// approved one.
func (h Hook) Script() string {
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(h.Run), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Digest is the SHA-256 of a hook's script, by which pools allow it.
func (h Hook) Digest() string {
	sum := sha256.Sum256([]byte(h.Script()))
	return hex.EncodeToString(sum[:])
}

// Allowed reports whether a list of digests has that of a hook. An empty list allows every hook.
func (h Hook) Allowed(digests []string) bool {
	return len(digests) == 0 || slices.Contains(digests, h.Digest())
}

// CheckFilePath refuses a path at which a run writes no file: one that leads out of the root module, and one of git or of
// the engine's state.
func CheckFilePath(p string) error {
	if len(p) > 255 || !filepath.IsLocal(p) || path.Clean(p) != p || p == "." || strings.Contains(p, "\\") || strings.ContainsFunc(p, unicode.IsControl) {
		return errors.New("want a relative path of at most 255 characters without . and .. in it")
	}
	for part := range strings.SplitSeq(strings.ToLower(p), "/") {
		if slices.Contains([]string{".git", ".terraform", "terraform.tfstate.d"}, part) || strings.HasSuffix(part, ".tfstate") {
			return fmt.Errorf("no file is written at %s: git and the engine's state are not part of the code", part)
		}
	}
	return nil
}
