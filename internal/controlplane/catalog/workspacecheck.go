package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxWorkspace bounds a workspace's settings, because each spec contains them.
const maxWorkspace = 200 << 10

// MaxRuntime is how long a run of a workspace may take.
func MaxRuntime(w api.Workspace) (time.Duration, error) {
	if w.MaxRuntime == "" {
		return workflow.DefaultMaxRuntime, nil
	}
	d, err := time.ParseDuration(w.MaxRuntime)
	if err != nil || d < time.Second || d > workflow.MaxMaxRuntime {
		return 0, workflow.Invalid("max_runtime", "max_runtime is a duration such as 90m, from 1s to %s; %q is not", workflow.MaxMaxRuntime, text.Cut(w.MaxRuntime, 40))
	}
	return d, nil
}

// checkWorkspace refuses settings that could not run, each with its field, and fills in the defaults.
func checkWorkspace(w *api.Workspace) error {
	for _, check := range []func(*api.Workspace) error{
		checkName, checkRoute, checkEngine, checkCode, checkRoles, checkSize, checkPlace, checkLimits,
		checkEnvironment, checkVariables, checkArguments, checkApproval, checkPullRequests, checkSecrets,
		checkInputs, checkDependencies, checkBytes,
	} {
		if err := check(w); err != nil {
			return err
		}
	}
	return nil
}

func checkName(w *api.Workspace) error { return workflow.CheckWorkspaceName(w.Name) }

// checkEngine checks the engine, its version and its commands.
func checkEngine(w *api.Workspace) error {
	engine := api.EngineOf(w.Engine)
	if engine.Name == "" {
		return workflow.Invalid("engine", "engine is %s, not %q", api.EngineNames(), text.Cut(w.Engine, 40))
	}
	if err := checkCommands(w); err != nil {
		return err
	}
	if w.EngineVersion != "" && !engine.Program {
		return workflow.Invalid("engine_version", "engine %s has no version", w.Engine)
	}
	if _, err := version.NewConstraint(w.EngineVersion); err != nil && strings.TrimSpace(w.EngineVersion) != "" {
		return workflow.Invalid("engine_version", "engine_version is a version or constraint, such as 1.11.4 or ~> 1.10; %q is neither", text.Cut(w.EngineVersion, 40))
	}
	return nil
}

// checkCode checks where the code and its modules come from.
func checkCode(w *api.Workspace) error {
	return cmp.Or(checkSource(w.Source), checkModules(w.Modules))
}

// checkSize checks how long a run may take and how large its task is, and fills in the size.
func checkSize(w *api.Workspace) error {
	if _, err := MaxRuntime(*w); err != nil {
		return err
	}
	if _, err := task.SizeOf(w.Size); err != nil {
		return workflow.Invalid("size", "%v", err)
	}
	w.Size = cmp.Or(w.Size, "small")
	return nil
}

// checkLimits checks the bounds of texts and numbers.
func checkLimits(w *api.Workspace) error {
	if err := workflow.CheckText("description", w.Description, utf8.UTFMax*1000); err != nil {
		return err
	}
	if w.MaxActive < 0 || w.MaxActive > 1000 {
		return workflow.Invalid("max_active", "max_active lies between 0 (the default) and 1000")
	}
	if w.DefaultPriority < -100 || w.DefaultPriority > 100 {
		return workflow.Invalid("default_priority", "a priority lies between -100 and 100")
	}
	return nil
}

func checkEnvironment(w *api.Workspace) error {
	for _, name := range slices.Sorted(maps.Keys(w.Environment)) {
		if err := checkEnv("environment", name); err != nil {
			return err
		}
		if strings.ContainsRune(w.Environment[name], 0) {
			return workflow.Invalid("environment."+name, "a value cannot contain NUL")
		}
		if err := checkLength("environment."+name, name, w.Environment[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkVariables(w *api.Workspace) error {
	for _, name := range slices.Sorted(maps.Keys(w.Variables)) {
		if !api.VariableName(w.Engine, name) {
			return workflow.Invalid("variables", "%q is not the name of a variable", text.Cut(name, 64))
		}
		if w.Engine == api.EngineCommand || w.Engine == api.EngineTerragrunt { // which get them in the environment
			value, ok := w.Variables[name].(string)
			if !ok {
				raw, _ := json.Marshal(w.Variables[name]) // it was JSON before
				value = string(raw)
			}
			if err := checkLength("variables."+name, "DAYFLY_VAR_"+name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkArguments checks the additions to the command lines of the engine.
func checkArguments(w *api.Workspace) error {
	return cmp.Or(api.CheckFlags(w.Engine, w.Flags), api.CheckVarFiles("var_files", w.Engine, w.Source, w.VarFiles))
}

func checkApproval(w *api.Workspace) error {
	approval, err := rules.CheckApproval("approval", w.Approval)
	if err != nil {
		return err
	}
	w.Approval = approval
	return nil
}

func checkPullRequests(w *api.Workspace) error { return pullrequest.CheckSettings(*w) }

func checkSecrets(w *api.Workspace) error {
	if len(w.Secrets) > 50 {
		return workflow.Invalid("secrets", "a workspace has at most 50 secrets")
	}
	for i, s := range w.Secrets {
		if err := checkSecret(fmt.Sprintf("secrets[%d]", i), s); err != nil {
			return err
		}
	}
	return nil
}

// checkBytes refuses a workspace whose settings are too large for a spec.
func checkBytes(w *api.Workspace) error {
	data, err := json.Marshal(w)
	if err != nil {
		return workflow.Invalid("", "cannot encode the workspace: %v", err)
	}
	if len(data) > maxWorkspace {
		return workflow.Refuse(workflow.ErrTooLarge, "", "the workspace has %d bytes, the limit is %d", len(data), maxWorkspace)
	}
	return nil
}

func checkCommands(w *api.Workspace) error {
	if w.Engine != api.EngineCommand {
		if len(w.Commands) > 0 {
			return workflow.Invalid("commands", "commands go with engine command only")
		}
		return nil
	}
	if len(w.Commands) == 0 {
		return workflow.Invalid("commands", "engine command needs at least one command, such as commands.update")
	}
	known := []string{string(workflow.InsightsScan)}
	for _, op := range workflow.Operations() {
		if workflow.Plans(workflow.Deployment, op) {
			known = append(known, string(op))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Commands)) {
		if !slices.Contains(known, name) {
			return workflow.Invalid("commands", "%q is not one of %s", text.Cut(name, 40), strings.Join(known, ", "))
		}
		if w.Commands[name] == "" {
			return workflow.Invalid("commands."+name, "the command is empty")
		}
	}
	return nil
}

// checkLength refuses a value that is too long for an environment variable.
func checkLength(field, name, value string) error {
	if len(name)+len(value) > api.MaxEnvironmentEntry {
		return workflow.Invalid(field, "it has %d bytes, and an environment variable has at most %d with its name: put the value into a file with files of the workspace", len(value), api.MaxEnvironmentEntry)
	}
	return nil
}

// checkEnv refuses names that a shell cannot set, and names that would bring foreign code into the runner (DAYFLY_)
// or into each program that it starts (LD_).
func checkEnv(field, name string) error {
	if !env.Valid(name) {
		return workflow.Invalid(field, "%q is not the name of an environment variable", text.Cut(name, 64))
	}
	if env.Reserved(name) {
		return workflow.Invalid(field, "%s cannot be set: names that start with DAYFLY_ or LD_ are reserved", name)
	}
	return nil
}

func checkSecret(field string, s api.Secret) error {
	switch {
	case (s.Env == "") == (s.File == ""):
		return workflow.Invalid(field, "set either env or file of a secret, not both")
	case s.Env != "":
		if err := checkEnv(field+".env", s.Env); err != nil {
			return err
		}
	default:
		if err := checkInside(field+".file", s.File); err != nil {
			return err
		}
	}
	if s.Ref == "" || len(s.Ref) > 2048 {
		return workflow.Invalid(field+".ref", "a secret has a reference, such as file:NAME")
	}
	return CheckRef(field+".ref", s.Ref)
}

// storedRef is the form of a reference to a secret in Secrets Manager, to a parameter in Systems Manager or to a key
// in Vault. The runner reads the part after the name, which selects a key or a version.
var storedRef = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(arn:aws(?:-[a-z]+){0,3}:(secretsmanager:[a-z0-9-]{1,32}:[0-9]{12}:secret:|ssm:[a-z0-9-]{1,32}:[0-9]{12}:parameter/)[!-~]+|vault:[!-"$-~]+/[!-"$-~]+#[!-~]+)$`)
})

// CheckRef refuses a kind of reference that runners of this version cannot resolve. The value of a secret that was
// put there by mistake looks the same, so the reference is never repeated.
func CheckRef(field, ref string) error {
	scheme, name, ok := strings.Cut(ref, ":")
	if storedRef().MatchString(ref) && (scheme != "vault" || len(ref) <= api.MaxSecretRef) || ok && name != "" && (scheme == "file" || scheme == "env") {
		return nil
	}
	return workflow.Invalid(field, "a reference is file:NAME, env:NAME, vault:PATH#KEY, or the ARN of a secret in Secrets Manager or of a parameter in Systems Manager; it names a secret and never holds its value")
}

// checkInside refuses a path that could lead out of its directory.
func checkInside(field, p string) error {
	if !api.Inside(p) {
		return workflow.Invalid(field, "%q must be a relative path without . and .. in it", text.Cut(p, 80))
	}
	return nil
}

func checkSource(s api.Source) error {
	kinds := 0
	for _, set := range []bool{s.Directory != "", s.Git != nil, s.Archive != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return workflow.Invalid("source", "set one of directory, git and archive as the source")
	case s.Directory == "" && s.Path != "":
		return workflow.Invalid("source.path", "it goes with a directory; git and archive have a path of their own")
	case s.Archive != nil:
		return checkArchive(s.Archive)
	case s.Directory != "":
		if !path.IsAbs(s.Directory) || path.Clean(s.Directory) != s.Directory || strings.ContainsRune(s.Directory, 0) || len(s.Directory) > 4000 {
			return workflow.Invalid("source.directory", "%q must be an absolute path without . and .. in it", text.Cut(s.Directory, 80))
		}
		if s.Path != "" {
			return checkInside("source.path", s.Path)
		}
		return nil
	}
	return checkGit(s.Git)
}

var (
	sha256Form = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-fA-F]{64}$`) })
	bucketForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`) })
	regionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$`) })
)

func checkArchive(a *api.ArchiveSource) error {
	if err := checkArchiveURL(a); err != nil {
		return err
	}
	if a.Region != "" && !regionForm().MatchString(a.Region) {
		return workflow.Invalid("source.archive.region", "%q is not the name of a region, such as eu-west-1", text.Cut(a.Region, 40))
	}
	if !sha256Form().MatchString(a.SHA256) {
		return workflow.Invalid("source.archive.sha256", "want the 64 hexadecimal digits of the archive's SHA-256, which sha256sum prints")
	}
	if a.Path != "" {
		if err := checkInside("source.archive.path", a.Path); err != nil {
			return err
		}
	}
	if a.TokenRef == "" {
		return nil
	}
	return CheckRef("source.archive.token_ref", a.TokenRef)
}

// checkArchiveURL checks the address of an archive, and that a token and a region go with its scheme.
func checkArchiveURL(a *api.ArchiveSource) error {
	refuse := func(field, format string, args ...any) error {
		return workflow.Invalid("source.archive."+field, format, args...)
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return refuse("url", "the address must be https://HOST/FILE or s3://BUCKET/KEY")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return refuse("url", "the address has credentials, a query or a fragment, which could contain a secret; name a secret in token_ref instead")
	}
	switch {
	case u.Scheme == "s3" && !bucketForm().MatchString(u.Host):
		return refuse("url", "%q is not the name of a bucket", text.Cut(u.Host, 80))
	case u.Scheme == "s3" && a.TokenRef != "":
		return refuse("token_ref", "a token goes with https; s3 is read with the role of the workspace")
	case u.Scheme == "https" || u.Scheme == "http" && outbound.Loopback(u.Hostname()):
		if a.Region != "" {
			return refuse("region", "a region goes with s3")
		}
	case u.Scheme == "http":
		return refuse("url", "plain http would show the token and the code to everyone on the network path; use https")
	case u.Scheme != "s3":
		return refuse("url", "the scheme is https or s3, not %q", text.Cut(u.Scheme, 20))
	}
	return nil
}

// scpLike is the short form of an ssh address.
var scpLike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\s:]+$`) })

func checkGit(g *api.GitSource) error {
	ssh, err := checkGitURL(g.URL)
	if err != nil {
		return err
	}
	if !api.GitRef(g.Ref) {
		return workflow.Invalid("source.git.ref", "%q is not the name of a branch, tag or commit", text.Cut(g.Ref, 80))
	}
	if err := checkVersion(g); err != nil {
		return err
	}
	if g.Path != "" {
		if err := checkInside("source.git.path", g.Path); err != nil {
			return err
		}
	}
	for field, ref := range map[string]string{"token_ref": g.TokenRef, "ssh_key_ref": g.SSHKeyRef} {
		if ref != "" {
			if err := CheckRef("source.git."+field, ref); err != nil {
				return err
			}
		}
	}
	return checkGitAccess(g, ssh)
}

// checkGitURL checks the address of a git source, and says whether it is one for ssh.
func checkGitURL(address string) (ssh bool, err error) {
	if scpLike().MatchString(address) {
		return true, nil
	}
	refuse := func(format string, args ...any) (bool, error) {
		return false, workflow.Invalid("source.git.url", format, args...)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return refuse("the address must be https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH")
	}
	if _, has := u.User.Password(); has || u.User != nil && u.Scheme != "ssh" {
		return refuse("the address contains credentials; put them into a secret and name it in token_ref")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return refuse("the address has a query or a fragment, which could contain a token; name a secret in token_ref instead")
	}
	switch {
	case u.Scheme == "https", u.Scheme == "ssh":
		return u.Scheme == "ssh", nil
	case u.Scheme != "http":
		return refuse("the scheme is https or ssh, not %q", text.Cut(u.Scheme, 20))
	case !outbound.Loopback(u.Hostname()):
		return refuse("plain http would show the token and the code to everyone on the network path; use https")
	}
	return false, nil
}

// checkGitAccess checks that the credentials of a git source go with its address.
func checkGitAccess(g *api.GitSource, ssh bool) error {
	refuse := func(field, why string) error { return workflow.Invalid("source.git."+field, "%s", why) }
	switch {
	case ssh && g.TokenRef != "":
		return refuse("token_ref", "a token goes with https; ssh takes ssh_key_ref")
	case ssh && g.SSHKeyRef == "":
		return refuse("ssh_key_ref", "ssh needs a key: name its secret")
	case ssh && strings.TrimSpace(g.KnownHosts) == "":
		return refuse("known_hosts", "ssh needs the host's line of a known_hosts file, so that no other host can pose as it")
	case !ssh && (g.SSHKeyRef != "" || g.KnownHosts != ""):
		return refuse("ssh_key_ref", "ssh_key_ref and known_hosts go with an ssh address")
	case g.Username != "" && g.TokenRef == "":
		return refuse("username", "a user name goes with token_ref")
	}
	return nil
}

var imageName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`) })

// checkPlace refuses an image, a use of Spot and a disk size that no pool could have. The pool itself checks whether
// it has them.
func checkPlace(w *api.Workspace) error {
	if w.Image != "" && !imageName().MatchString(w.Image) {
		return workflow.Invalid("image", "image is the name of one of the pool's images: 1 to 64 characters of A-Z, a-z, 0-9, _, . and -; %s is not", text.Quote(w.Image, 64))
	}
	if !slices.Contains([]string{"", "never", "reads", "all"}, w.Spot) {
		return workflow.Invalid("spot", "spot is never, reads or all, not %q", text.Cut(w.Spot, 40))
	}
	if w.DiskGiB < 0 || w.DiskGiB > 200 {
		return workflow.Invalid("disk_gib", "disk_gib lies between 0 (the pool's default) and 200")
	}
	return nil
}
