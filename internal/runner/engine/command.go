package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// varPrefix begins the names of the environment variables for the workspace's variables.
const varPrefix = "DAYFLY_VAR_"

// runCommand runs the script that the workspace has for the operation. The script finds the
// variables in DAYFLY_VAR_<name>, text as it is and anything else as JSON; the operation in
// DAYFLY_OPERATION; its secret files in DAYFLY_SECRETS_DIR; its own lasting directory in
// DAYFLY_STATE_DIR, if the workspace's state has kind directory and the operation may change it. It writes outputs as
// a JSON object in the file named by DAYFLY_OUTPUTS.
func runCommand(ctx context.Context, h Host, j Job) (out Outcome, err error) {
	name := operationName(j.Spec)
	err = h.Step(ctx, stepRun, func(ctx context.Context) (said string, err error) {
		said, out, err = command(ctx, h, j, name)
		return said, err
	})
	if err == nil {
		return out, nil
	}
	if context.Cause(ctx) != nil {
		return Outcome{}, interrupted(ctx, " during "+stepRun)
	}
	return Outcome{}, runnerError(err)
}

// operationName is the key of the script in a workspace's commands.
func operationName(s api.Spec) string {
	return cmp.Or(string(s.Operation), string(s.Type))
}

func command(ctx context.Context, h Host, j Job, name string) (said string, out Outcome, err error) {
	script, ok := j.Spec.Commands[name]
	if !ok || strings.TrimSpace(script) == "" {
		return "", out, &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrNotFound, Detail: noCommand(j.Spec, name)}
	}
	temp, err := openFolder(j.TempDir, j.Owner)
	if err != nil {
		return "", out, err
	}
	defer temp.close()
	// The script goes into a file: an argument has a maximal length, and everybody on the machine can read
	// arguments.
	scriptName, outputsName := newName("script-", ".sh"), newName("outputs-", ".json")
	if err := temp.write(scriptName, []byte(script)); err != nil {
		return "", out, fmt.Errorf("write script: %w", err)
	}
	env, err := variableEnv(j.Spec.Variables)
	if err != nil {
		return "", out, err
	}
	env = append(env, secretsEnv(j.SecretsDir)...)
	env = append(env, "DAYFLY_OPERATION="+name, "DAYFLY_OUTPUTS="+temp.join(outputsName))
	if j.StateDir != "" && !j.ReadOnlyState && workflow.ChangesState(j.Spec.Type, j.Spec.Operation) {
		state, err := openState(h, j)
		if err != nil {
			return "", out, fmt.Errorf("open state directory: %w", err)
		}
		state.close()
		env = append(env, "DAYFLY_STATE_DIR="+j.StateDir)
	}
	h.Logf("running the command of %s", name)
	code, err := h.Exec(ctx, Command{Args: []string{"/bin/sh", "-e", temp.join(scriptName)}, Dir: j.Root, Env: env, Quiet: true})
	if err != nil {
		return "", out, fmt.Errorf("run command: %w", err)
	}
	if code != 0 {
		return "", out, &Failure{Reason: workflow.ReasonStepFailed, Detail: fmt.Sprintf("the command of %s failed with exit code %d; its log has the cause", name, code)}
	}
	raw, err := temp.read(outputsName, maxOutputFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", out, nil
	}
	f, parseErr := found{}, err
	if err == nil {
		f, parseErr = readOutputFile(raw)
	}
	if parseErr != nil {
		return "", out, &Failure{
			Reason: workflow.ReasonStepFailed, Err: workflow.ErrInvalid,
			Detail: text.Cut(fmt.Sprintf("the command of %s succeeded, but its file DAYFLY_OUTPUTS cannot be used: %v", name, parseErr), maxDetail),
		}
	}
	out.storeSensitive(ctx, h, j.Spec, f)
	said = out.takeOutputs(h, f)
	return said, out, nil
}

func noCommand(s api.Spec, name string) string {
	if len(s.Commands) == 0 {
		return fmt.Sprintf("the workspace has no commands; give it one for %s", name)
	}
	return fmt.Sprintf("the workspace has no command for %s, only for %s", name, strings.Join(slices.Sorted(maps.Keys(s.Commands)), ", "))
}

// variableEnv makes environment variables of the workspace's variables, sorted by name.
func variableEnv(variables map[string]any) ([]string, error) {
	var env []string
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		key := varPrefix + envKey(name)
		if other, ok := names[key]; ok {
			return nil, &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrInvalid, Detail: fmt.Sprintf("the variables %s and %s would both be %s; rename one", quote(other), quote(name), key)}
		}
		names[key] = name
		value, err := variableText(name, variables[name])
		if err != nil {
			return nil, err
		}
		env = append(env, key+"="+value)
	}
	return env, nil
}

// variableText is the value of a variable for the environment: text as it is, and anything else as JSON.
func variableText(name string, value any) (string, error) {
	said, ok := value.(string)
	if !ok {
		raw, err := json.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("variable %s: %w", quote(name), err)
		}
		said = string(raw)
	}
	if strings.ContainsRune(said, 0) {
		return "", &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrInvalid, Detail: fmt.Sprintf("the variable %s holds a zero byte, which an environment variable cannot hold", quote(name))}
	}
	return said, nil
}

// envKey makes a name that a shell can use.
func envKey(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') {
			return c
		}
		return '_'
	}, name)
}
