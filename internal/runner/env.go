package runner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// DefaultPath is where programs are looked for after the directories of the engines.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment builds the engine's environment from nothing. Later variables win: the workspace may choose
// its own HOME or PATH, and its secrets win over its plain variables.
func (r *run) environment(spec api.Spec, forwarded, secrets []string) ([]string, error) {
	path := r.cfg.Path
	if len(r.cfg.EnginePath) > 0 {
		path = strings.Join(r.cfg.EnginePath, ":") + ":" + path
	}
	// The engine's user may have no name in /etc/passwd: some programs, such as pulumi, then want one here.
	env := []string{"PATH=" + path, "HOME=" + r.dirs.home, "USER=dayfly", "TMPDIR=" + r.dirs.temp, "LANG=C.UTF-8"}
	if r.role != nil {
		env = append(env, "AWS_REGION="+r.role.region, "AWS_DEFAULT_REGION="+r.role.region)
	}
	env = append(env, forwarded...)
	for _, name := range slices.Sorted(maps.Keys(spec.Environment)) {
		if err := checkVariable(name); err != nil {
			return nil, err
		}
		if strings.ContainsRune(spec.Environment[name], 0) {
			return nil, fmt.Errorf("the variable %s of the workspace contains a zero byte, which a variable cannot hold", name)
		}
		env = append(env, name+"="+spec.Environment[name])
	}
	env = append(env, secrets...)
	if r.role != nil { // with them the engine could bypass the role
		env = slices.DeleteFunc(env, func(v string) bool {
			return strings.HasPrefix(v, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=") || strings.HasPrefix(v, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=")
		})
	}
	return append(env,
		"DAYFLY_SECRETS_DIR="+r.dirs.secrets,
		"DAYFLY_ARTIFACTS="+r.dirs.artifacts,
		"DAYFLY_WORKFLOW_ID="+spec.Workflow,
		"DAYFLY_ATTEMPT="+strconv.Itoa(spec.Attempt),
		"DAYFLY_ORGANIZATION="+spec.Organization,
		"DAYFLY_WORKSPACE="+spec.Workspace,
		"DAYFLY_WORKFLOW_TYPE="+string(spec.Type),
		"DAYFLY_OPERATION="+cmp.Or(string(spec.Operation), string(spec.Type)),
	), nil
}

// forwarded are the variables of the machine that the engine gets. The code of a pull request gets none that would be
// masked: secrets that a workspace's admin did not mark for previews are not for it.
func (r *run) forwarded(spec api.Spec) []string {
	if !spec.PullRequest {
		return r.cfg.Forward
	}
	var out, kept []string
	for _, v := range r.cfg.Forward {
		if name, value, _ := strings.Cut(v, "="); len(secretsOf(name, value).values) > 0 {
			kept = append(kept, name)
		} else {
			out = append(out, v)
		}
	}
	if len(kept) > 0 {
		r.logf("this is the run of a pull request: %s of the machine not forwarded (%s)", text.Count(len(kept), "variable"), strings.Join(kept, ", "))
	}
	return out
}

// checkVariable refuses names that the workspace may not set. The control plane refuses them when the
// workspace is saved. If one comes here anyway, the run fails instead of dropping it.
func checkVariable(name string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return fmt.Errorf("the workspace sets a variable named %q, which is not a valid name", name)
	}
	if env.Reserved(name) {
		return workflow.Refuse(workflow.ErrInvalid, "environment", "the workspace sets the variable %s; names that start with DAYFLY_ or LD_ are reserved", name)
	}
	return nil
}
