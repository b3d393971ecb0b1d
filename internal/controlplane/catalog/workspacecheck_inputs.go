package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxTexts bounds the texts of files and hooks together. A workspace has room for its other settings beside them.
const maxTexts = 128 << 10

// checkInputs refuses files, hooks, and steps of secrets that no run could use.
func checkInputs(w *api.Workspace) error {
	size := 0
	for i, f := range w.Files {
		size += len(f.Content)
		if err := checkFile(fmt.Sprintf("files[%d].path", i), f.Path, w.Files[:i]); err != nil {
			return err
		}
	}
	for i, h := range w.Hooks {
		size += len(h.Run)
		if err := checkHook(fmt.Sprintf("hooks[%d]", i), h, w.Engine); err != nil {
			return err
		}
	}
	switch {
	case len(w.Files) > 50:
		return workflow.Invalid("files", "a workspace has at most 50 files")
	case len(w.Hooks) > 50:
		return workflow.Invalid("hooks", "a workspace has at most 50 hooks")
	case size > maxTexts:
		return workflow.Refuse(workflow.ErrTooLarge, "files", "files and hooks have %d bytes together, the limit is %d; keep larger files in the source", size, maxTexts)
	}
	for i, s := range w.Secrets {
		for j, step := range s.Steps {
			field := fmt.Sprintf("secrets[%d].steps[%d]", i, j)
			if err := checkStep(field, step, w.Engine); err != nil {
				return err
			}
			if slices.Contains(s.Steps[:j], step) {
				return workflow.Invalid(field, "step %s is given twice", step)
			}
		}
	}
	return nil
}

func checkFile(field, p string, earlier []api.File) error {
	if err := api.CheckFilePath(p); err != nil {
		return workflow.Invalid(field, "%s cannot be written: %v", text.Quote(p, 80), err)
	}
	for _, e := range earlier {
		if strings.HasPrefix(p+"/", e.Path+"/") || strings.HasPrefix(e.Path, p+"/") {
			return workflow.Invalid(field, "%s and %s cannot both be written", text.Quote(e.Path, 80), text.Quote(p, 80))
		}
	}
	return nil
}

func checkHook(field string, h api.Hook, engine string) error {
	switch {
	case (h.Before == "") == (h.After == ""):
		return workflow.Invalid(field, "set either before or after of a hook, not both")
	case len(h.Name) > 64 || strings.ContainsFunc(h.Name, unicode.IsControl):
		return workflow.Invalid(field+".name", "the name of a hook has at most 64 characters and no control characters")
	case strings.TrimSpace(h.Run) == "" || strings.ContainsRune(h.Run, 0):
		return workflow.Invalid(field+".run", "a hook has a script without NUL")
	case h.Before != "":
		return checkStep(field+".before", h.Before, engine)
	}
	return checkStep(field+".after", h.After, engine)
}

func checkStep(field, step, engine string) error {
	if steps := api.EngineSteps(engine); !slices.Contains(steps, step) {
		return workflow.Invalid(field, "the steps of engine %s are %s; %s is not one of them", engine, strings.Join(steps, ", "), text.Quote(step, 40))
	}
	return nil
}
