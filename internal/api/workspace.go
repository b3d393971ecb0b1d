package api

import (
	"path"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Kinds of place for the engine's state. A workspace without one uses the backend that its code declares, else the
// control plane's default.
const (
	StateSource    = "source"    // the backend that the code declares, else the kind State.Default
	StateDirectory = "directory" // the workspace's own directory under the runner's data directory
	StateS3        = "s3"        // a bucket, with a lock file
)

// Workspace is one root of infrastructure code with its settings; it is also the workspace
// file. It never holds a secret value.
type Workspace struct {
	ID          string `json:"id,omitempty" maxLength:"64" doc:"Made by the control plane; it never changes. The trust policy of a role compares it with sts:ExternalId. Where given on a change, it must be the workspace's own"`
	Name        string `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"network"`
	Project     string `json:"project,omitempty" maxLength:"64" doc:"Name of the project; default global, the root of all projects"`
	Stack       string `json:"stack,omitempty" maxLength:"64" doc:"Label for the assignment of pools; only an admin of the organization may set it"`
	Namespace   string `json:"namespace,omitempty" maxLength:"64" doc:"Label for the assignment of pools; only an admin of the organization may set it"`
	Description string `json:"description,omitempty" maxLength:"1000" doc:"Description of the workspace"`

	RunSettings

	State           *State        `json:"state,omitempty" doc:"Where the engine's state is kept; default: the control plane's"`
	Pool            string        `json:"pool,omitempty" doc:"Name of the pool; empty takes the one that every organization starts with" example:"default"`
	Labels          []string      `json:"labels,omitempty" maxItems:"10" doc:"Instead of a pool: any pool that has all these labels may run it; only an admin may set them"`
	Runner          string        `json:"runner,omitempty" maxLength:"128" doc:"Name of the one instance of its pool that may run it; only an admin may set it"`
	Role            string        `json:"role,omitempty" maxLength:"700" doc:"ARN of the role that its runs have in the cloud, with deploy_target ecs; only an admin may set it"`
	PreviewRole     string        `json:"preview_role,omitempty" maxLength:"700" doc:"ARN of the role of its previews and scans; default role. Runs of pull requests have this role or none. It lies under the path of role; only an admin may set it"`
	Size            string        `json:"size,omitempty" maxLength:"20" doc:"small (the default), medium, large, xlarge, or CPU/MEMORY in 1/1024 vCPU and MiB, a pair that Fargate has, such as 2048/8192" example:"small"`
	MaxRuntime      string        `json:"max_runtime,omitempty" doc:"Go duration, at most 24h; default 1h" example:"1h"`
	MaxActive       int           `json:"max_active,omitempty" minimum:"0" maximum:"1000" doc:"Maximum number of workflows at once; default 10" example:"10"`
	Version         int64         `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
	Approval        *Approval     `json:"approval,omitempty" doc:"Requirements before a plan is applied, beside those of its organization and its projects; only an admin may remove or weaken them"`
	PullRequests    *PullRequests `json:"pull_requests,omitempty" doc:"When a pull request previews it; it needs a git source"`
	DefaultPriority int           `json:"default_priority,omitempty" minimum:"-100" maximum:"100" doc:"Priority of runs that name none; higher first"`

	Inputs []WorkspaceInput `json:"inputs,omitempty" maxItems:"50" doc:"Outputs of other workspaces that its runs get as variables"`
	After  []string         `json:"after,omitempty" maxItems:"50" doc:"Names of workspaces that a tree runs before it, beside those of its inputs"`

	Applied *AppliedCommit `json:"applied,omitempty" doc:"Commit of a push that was applied last; said by the control plane, and ignored on a change"`
}

// RunSettings are the settings of a workspace for its runs. The spec of each run repeats them.
type RunSettings struct {
	Engine        string              `json:"engine" enum:"terraform,tofu,terragrunt,pulumi,command" doc:"Program that runs the code"`
	EngineVersion string              `json:"engine_version,omitempty" maxLength:"100" doc:"A version or constraint, such as 1.11.4 or ~> 1.10; empty takes the runner's own" example:"~> 1.10"`
	Commands      map[string]string   `json:"commands,omitempty" doc:"With engine command: the shell script of each operation (preview, update, refresh, destroy, insights_scan)"`
	Source        Source              `json:"source" doc:"Where the code comes from"`
	Variables     Values              `json:"variables,omitempty" doc:"Inputs of the code" example:"{\"region\":\"eu-central-1\"}"`
	Environment   map[string]string   `json:"environment,omitempty" doc:"Environment variables of the engine"`
	Secrets       []Secret            `json:"secrets,omitempty" maxItems:"50" doc:"Secret values that the engine is given"`
	Flags         map[string][]string `json:"flags,omitempty" doc:"Further flags of the engine for each of its steps: init, plan, apply" example:"{\"plan\":[\"-parallelism=20\"]}"`
	VarFiles      []string            `json:"var_files,omitempty" maxItems:"20" doc:"Files of variables in the source, relative to the root module; ../ leads above it" example:"prod.tfvars"`
	Files         []File              `json:"files,omitempty" maxItems:"50" doc:"Files that are written beside the code; never a secret"`
	Hooks         []Hook              `json:"hooks,omitempty" maxItems:"50" doc:"Scripts that run before and after steps"`
	Modules       []ModuleCredential  `json:"modules,omitempty" maxItems:"20" doc:"Credentials with which the engine fetches modules and providers, by host"`
	Install       *bool               `json:"install,omitempty" doc:"With pulumi: whether pulumi install fetches the dependencies of the program; default true. With false the image or the source has all of them"`
	Image         string              `json:"image,omitempty" maxLength:"64" doc:"Name of one of the pool's images; default the pool's own"`
	Spot          string              `json:"spot,omitempty" enum:"never,reads,all" doc:"Runs that may use Spot, if the pool allows them; default the pool's"`
	DiskGiB       int                 `json:"disk_gib,omitempty" minimum:"0" maximum:"200" doc:"Disk of a run in GiB, within the pool's limits; default the pool's" example:"50"`
}

// AppliedCommit is the commit of a protected branch that was applied to a workspace last. Runs of pull requests, runs
// without a commit, and those with options, which may apply a part of it, do not count.
type AppliedCommit struct {
	Commit     string    `json:"commit" doc:"The commit" example:"6dcb09b5b57875f334f61aebed695e2e4193db5e"`
	Repository string    `json:"repository" doc:"Repository that it is of" example:"github.com/example/infra"`
	Workflow   string    `json:"workflow" doc:"Id of the workflow that applied it, or found that it changes nothing" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	At         time.Time `json:"at" doc:"When that ended"`
}

// File is a text that is written into the run's copy of the source before its first step.
type File struct {
	Path    string `json:"path" minLength:"1" maxLength:"255" doc:"Path below the root module; a file of the source is not replaced" example:"backend.tf"`
	Content string `json:"content" maxLength:"65536" doc:"The text"`
}

// Hook is a shell script that runs before or after a step. Exactly one of before and after is set.
type Hook struct {
	Name   string `json:"name,omitempty" maxLength:"64" doc:"Display name" example:"lint"`
	Before string `json:"before,omitempty" maxLength:"64" doc:"Step before which it runs, such as init, plan or apply" example:"plan"`
	After  string `json:"after,omitempty" maxLength:"64" doc:"Step after which it runs, whether or not that succeeded" example:"apply"`
	Run    string `json:"run" minLength:"1" maxLength:"65536" doc:"The script"`
}

// ModuleCredential is how the engine logs in at a host that has modules or providers. One of token_ref and
// ssh_key_ref is set.
type ModuleCredential struct {
	Host       string `json:"host" minLength:"1" maxLength:"255" doc:"Name of a module registry or a git host, with its port if it has one" example:"modules.example.com"`
	TokenRef   string `json:"token_ref,omitempty" doc:"Reference of the secret with its token, for registries and for git with https"`
	Username   string `json:"username,omitempty" maxLength:"255" doc:"User name that goes with the token for git; default x-access-token"`
	SSHKeyRef  string `json:"ssh_key_ref,omitempty" doc:"Reference of the secret with a private key, for git with ssh"`
	KnownHosts string `json:"known_hosts,omitempty" maxLength:"10000" doc:"Lines of a known_hosts file; required with ssh"`
	Preview    bool   `json:"preview,omitempty" doc:"Whether runs of pull requests get it too, whose code the author of the pull request may have written; default false"`
}

// PullRequests says when a pull request of the workspace's repository previews it. Without it, each does that changes
// a file below the path of its source.
type PullRequests struct {
	Paths      []string `json:"paths,omitempty" maxItems:"50" doc:"Other paths that concern it, from the top of the repository: ** stands for any directories, * and ? for characters but a slash; with ! before it, paths that do not concern it" example:"modules/**"`
	IsDisabled bool     `json:"is_disabled,omitempty" doc:"Whether none does"`
	// It runs the merged commit, with the workspace's own role: it needs a git host whose webhooks are accepted.
	OnMerge workflow.Operation `json:"on_merge,omitempty" enum:"preview,update" doc:"Run that the merge of a pull request starts, by a webhook; default none. Where approvals are required, an update makes a plan first" example:"update"`
}

// Outcome is the outcome of putting a workspace. It crosses the wire in a header, so that the answer's body
// can be put again as it is.
type Outcome string

// OutcomeHeader holds it.
const OutcomeHeader = "Dayfly-Outcome"

// The outcomes.
const (
	OutcomeCreated   Outcome = "created"
	OutcomeChanged   Outcome = "changed"
	OutcomeUnchanged Outcome = "unchanged" // it was like that before
)

// Source says where the code comes from; exactly one field is set.
type Source struct {
	Directory string     `json:"directory,omitempty" doc:"A directory on the runner's machine, below one of its source_roots" example:"/srv/infra/network"`
	Path      string     `json:"path,omitempty" maxLength:"1000" doc:"With directory: subdirectory of the root module. All of the directory is copied" example:"envs/prod"`
	Git       *GitSource `json:"git,omitempty" doc:"A git repository"`

	Archive *ArchiveSource `json:"archive,omitempty" doc:"A tar, tar.gz or zip file"`
}

// At is the source with another branch, tag or commit of its repository; a source that has none is left as it is.
func (s Source) At(ref string) Source {
	if s.Git != nil {
		git := *s.Git
		git.Ref, git.Version, s.Git = ref, "", &git
	}
	return s
}

// inner is the path of the root module in the source; empty at its top.
func (s Source) inner() string {
	switch {
	case s.Git != nil:
		return s.Git.Path
	case s.Archive != nil:
		return s.Archive.Path
	}
	return s.Path
}

// RootModule is the directory of the root module of a directory source; empty for another source.
func (s Source) RootModule() string { return path.Join(s.Directory, s.Path) }

// ArchiveSource is a file with the code, which is used only if it has the digest that is known of it.
type ArchiveSource struct {
	URL      string `json:"url" minLength:"1" maxLength:"2000" doc:"https:// or s3://BUCKET/KEY; no credentials inside" example:"s3://example-code/network-1.4.0.tar.gz"`
	SHA256   string `json:"sha256" minLength:"64" maxLength:"64" pattern:"^[0-9a-fA-F]{64}$" doc:"SHA-256 of the file, in hexadecimal digits" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Path     string `json:"path,omitempty" maxLength:"1000" doc:"Subdirectory of the root module" example:"network"`
	Region   string `json:"region,omitempty" maxLength:"30" doc:"With s3: region of the bucket; default that of the runner" example:"eu-west-1"`
	TokenRef string `json:"token_ref,omitempty" doc:"With https: reference of the secret that holds a bearer token"`
}

// GitSource is a git repository.
type GitSource struct {
	URL        string `json:"url" minLength:"1" maxLength:"2000" doc:"https://, ssh:// or user@host:path; no credentials inside" example:"https://github.com/example/infra.git"`
	Ref        string `json:"ref,omitempty" maxLength:"255" doc:"Branch, tag or commit; default: the remote's HEAD" example:"main"`
	Path       string `json:"path,omitempty" maxLength:"1000" doc:"Subdirectory of the root module" example:"network"`
	TokenRef   string `json:"token_ref,omitempty" doc:"Reference of the secret that holds an https token"`
	Username   string `json:"username,omitempty" doc:"User name that goes with the token; default x-access-token"`
	SSHKeyRef  string `json:"ssh_key_ref,omitempty" doc:"Reference of the secret that holds a private key"`
	KnownHosts string `json:"known_hosts,omitempty" maxLength:"10000" doc:"Lines of a known_hosts file; required with ssh"`
	Version    string `json:"version,omitempty" maxLength:"100" doc:"Instead of ref: the highest tag that fits, as v1.4.2 fits ~> 1.4" example:"~> 1.4"`
	Submodules bool   `json:"submodules,omitempty" doc:"Whether submodules are fetched too, from hosts that the credentials are for or that need none"`
}

// State says where the engine keeps its state.
type State struct {
	Kind      string `json:"kind,omitempty" enum:"source,directory,s3" doc:"source: the backend that the code declares; directory; s3. None: source, and where the code declares no backend, the control plane's default"`
	Bucket    string `json:"bucket,omitempty" doc:"With s3: name of the bucket"`
	Region    string `json:"region,omitempty" doc:"With s3: region of the bucket"`
	Endpoint  string `json:"endpoint,omitempty" doc:"With s3: another address of the service; uses path-style names"`
	KMSKeyARN string `json:"kms_key_arn,omitempty" doc:"With s3: key that encrypts the state"`

	BackendConfig Values `json:"backend_config,omitempty" doc:"With source: settings that complete the backend that the code declares, as terraform's -backend-config; never a secret"`
	Workspace     string `json:"workspace,omitempty" maxLength:"90" doc:"The engine's own workspace, as in terraform workspace select; default TF_WORKSPACE, else the one that is selected in a directory source, else default. With pulumi the stack, required"`

	SecretsProvider string `json:"secrets_provider,omitempty" maxLength:"500" doc:"With pulumi: provider that encrypts the secrets of a new stack, such as passphrase or awskms://alias/NAME" example:"passphrase"`

	Key     string `json:"key,omitempty" maxLength:"64" doc:"Names the place among those of the organization: the workspace's id; said by the control plane"`
	Default string `json:"default,omitempty" doc:"Said by the control plane: the kind of place where the code declares none"`
}

// Directory is the key of the directory that a run with this state may need; empty where it needs none.
func (s State) Directory() string {
	if s.Kind == StateDirectory || s.Default == StateDirectory {
		return s.Key
	}
	return ""
}

// StateFound is where a run found the state of its engine, and which. It holds no setting's value.
type StateFound struct {
	Backend   string `json:"backend" maxLength:"64" doc:"Type of the backend, such as s3; local for a directory" example:"s3"`
	Settings  string `json:"settings" maxLength:"64" doc:"SHA-256 of the settings that name the place" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Workspace string `json:"workspace" maxLength:"90" doc:"The engine's own workspace" example:"default"`
	Place     string `json:"place,omitempty" maxLength:"64" doc:"With terraform and tofu: SHA-256 of all that identifies the place, including its server"`
	Store     string `json:"store,omitempty" maxLength:"64" doc:"With a directory: id of its data directory"`
	Declared  string `json:"declared,omitempty" maxLength:"64" doc:"Type of the backend that the code declares, where it is not the one that is used"`
	Lineage   string `json:"lineage,omitempty" maxLength:"255" doc:"Lineage of the state; empty where there is none yet"`
	Serial    int64  `json:"serial,omitempty" doc:"Serial number of the state"`
	Taken     string `json:"taken,omitempty" maxLength:"255" doc:"From where it was taken over in this run"`
}

// Namesake is a deleted workspace of a name, and where its state is.
type Namesake struct {
	ID    string `json:"id" doc:"Id of the deleted workspace" example:"ws_01k1xz4m2p7q9r3s5t8v"`
	State State  `json:"state" doc:"Where its state is"`
}

// DeletedWorkspace says where the state of a deleted workspace is. Nothing of it was moved or removed.
type DeletedWorkspace struct {
	ID        string      `json:"id" doc:"Id of the deleted workspace" example:"ws_01k1xz4m2p7q9r3s5t8v"`
	Name      string      `json:"name" doc:"Name that it had" example:"network"`
	Project   string      `json:"project,omitempty" doc:"Project that it was in" example:"global"`
	State     State       `json:"state" doc:"Where its state is"`
	Found     *StateFound `json:"found,omitempty" doc:"State that its last run found"`
	DeletedAt time.Time   `json:"deleted_at" doc:"When it was deleted"`
	DeletedBy string      `json:"deleted_by" doc:"Name of the token that deleted it" example:"ci"`
}

// MaxEnvironmentEntry is how many bytes the name and the value of an environment variable have together: Linux takes 128
// KiB, including the bytes between and after them (MAX_ARG_STRLEN, execve(2)).
const MaxEnvironmentEntry = 128<<10 - 2

// Secret names a secret value and where the engine finds it. Exactly one of env and file is set. file is a path below
// the run's secrets directory, whose place the engine finds in DAYFLY_SECRETS_DIR.
type Secret struct {
	Env  string `json:"env,omitempty" maxLength:"128" doc:"Environment variable that the engine finds the value in" example:"DB_PASSWORD"`
	File string `json:"file,omitempty" maxLength:"255" doc:"Or the path of a file with the value, below the directory that DAYFLY_SECRETS_DIR names"`
	Ref  string `json:"ref" minLength:"1" maxLength:"2048" doc:"file:NAME, env:NAME, vault:PATH#KEY, or the ARN of a secret in Secrets Manager or of a parameter in Systems Manager" example:"file:db-password"`

	Steps   []string `json:"steps,omitempty" maxItems:"10" doc:"Steps that get it, with their hooks; default all" example:"apply"`
	Preview bool     `json:"preview,omitempty" doc:"Whether runs of pull requests get it too, whose code the author of the pull request may have written; default false"`
}
