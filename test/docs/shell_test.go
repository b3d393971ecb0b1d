package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/arch"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/docs"
)

// documented is the address that the documents show.
const documented = "127.0.0.1:7331"

// builtIn is where the programs are built, if they are; TestMain removes it.
var builtIn string

// programs is the directory of dayfly and dayfly-policy. It lies where users that are not root can run them, for engines.
var programs = sync.OnceValues(func() (dir string, err error) {
	if builtIn, err = os.MkdirTemp("", "dayfly-docs-*"); err != nil {
		return "", err
	}
	if err := os.Chmod(builtIn, 0o755); err != nil { //nolint:gosec // see above
		return "", err
	}
	var program string
	for _, pkg := range []string{"cmd/dayfly", "cmd/dayfly-policy"} {
		if program, err = built.Program(context.Background(), builtIn, pkg); err != nil {
			return "", err
		}
	}
	return filepath.Dir(program), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code) //nolint:forbidigo // TestMain decides the exit code
}

// terminal runs shell blocks one after the other, like a user who follows a page: in a home directory of its own, with
// what serves in another terminal.
type terminal struct {
	dir     string // where it begins
	home    string
	environ []string
	address string // at which no process listens; replaces the one that the documents show
}

// ready is what a program that serves says last before it does.
var ready = map[string]string{"up": "try: dayfly run", "server": "admin token", "agent": "works for"}

// newTerminal has the built program on its PATH, where it is asked for.
func newTerminal(t *testing.T, withProgram bool) terminal {
	t.Helper()
	if testing.Short() {
		t.Skip("this runs the program and takes some seconds")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash here to run the blocks with")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Engines of a dayfly that runs as root are other users, and pass through here.
	for _, dir := range []string{home, filepath.Dir(home)} {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
			t.Fatal(err)
		}
	}
	address, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	if withProgram {
		dir, err := programs()
		if err != nil {
			t.Fatal(err)
		}
		path = dir + string(os.PathListSeparator) + path
	}
	term := terminal{home: home, dir: home, address: address}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		// What a reader's shell does not have: settings of a dayfly, and those of the make that runs this test.
		theirs := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !slices.ContainsFunc([]string{"DAYFLY_", "PULUMI_AGENT_", "XDG_", "MAKE", "MFLAGS", "HOME", "PATH"}, theirs) {
			term.environ = append(term.environ, v)
		}
	}
	// What the go command finds by HOME.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		term.environ = append(term.environ, name+"="+strings.TrimSpace(string(value)))
	}
	term.environ = append(term.environ, "HOME="+home, "PATH="+path,
		"DAYFLY_WORKING_DIRECTORY="+filepath.Join(home, "data"), "DAYFLY_DEPLOY_TARGET=process")
	return term
}

// serves returns which program a block leaves running.
func serves(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	words := strings.Fields(all[len(all)-1])
	if len(words) > 1 && words[0] == "dayfly" && ready[words[1]] != "" {
		return words[1]
	}
	return ""
}

// script is a bash script of the blocks. Each is preceded by a mark, so that its output is known.
func (term terminal) script(blocks []docs.Block) string {
	var b strings.Builder
	b.WriteString("set -eo pipefail\npids=\ntrap 'trap - EXIT; kill -TERM $pids 2>/dev/null || true; wait' EXIT\ntrap 'exit 1' TERM\n")
	for _, block := range blocks {
		text := strings.ReplaceAll(block.Text, documented, term.address)
		fmt.Fprintf(&b, "printf '\\n%s\\n'\n", mark(block))
		program := serves(text)
		if program == "" {
			b.WriteString(text)
			continue
		}
		at := strings.LastIndex(strings.TrimSpace(text), "\n") + 1
		log := filepath.Join(term.home, fmt.Sprintf("terminal-%d.log", block.Line))
		fmt.Fprintf(&b, "(\n%sexec %s\n) >'%s' 2>&1 &\npids=\"$pids $!\"\n", text[:at], strings.TrimSpace(text[at:]), log)
		fmt.Fprintf(&b, "for try in {1..600}; do grep -q '%s' '%s' && break; kill -0 $! 2>/dev/null || break; sleep 0.1; done\n", ready[program], log)
		fmt.Fprintf(&b, "grep -q '%s' '%s' || { cat '%s'; exit 1; }\n", ready[program], log, log)
	}
	b.WriteString("printf '\\n" + done + "\\n'\n")
	return b.String()
}

const done = "@@ done"

func mark(b docs.Block) string { return "@@ line " + strconv.Itoa(b.Line) }

// run returns what each block said.
func (term terminal) run(t *testing.T, blocks []docs.Block) map[int]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a net
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", term.script(blocks))
	cmd.Dir, cmd.Env = term.dir, term.environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	said := map[int]string{}
	line := 0
	for text := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(text), "@@ line "); ok {
			line, _ = strconv.Atoi(n)
			continue
		}
		said[line] += text
	}
	if err != nil || !strings.Contains(string(out), done) {
		t.Fatalf("the block at line %d failed: %v\n%s", line, err, said[line])
	}
	return said
}

// expectations are words that a block must say, by a command that is in it.
type expectations map[string][]string

// follow runs the sh blocks of a page, and shows each that it leaves out with the reason.
func (term terminal) follow(t *testing.T, page string, leave func(docs.Block) string, want expectations) {
	t.Helper()
	var blocks []docs.Block
	for _, b := range docs.Blocks(read(t, page)) {
		if b.Lang != "sh" {
			continue
		}
		if why := leave(b); why != "" {
			first, _, _ := strings.Cut(b.Text, "\n")
			t.Run(fmt.Sprintf("line %d: %s", b.Line, first), func(t *testing.T) { t.Skip(why) })
			continue
		}
		blocks = append(blocks, b)
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no sh blocks", page)
	}
	said := term.run(t, blocks)
	all := docs.Blocks(read(t, page))
	for i, b := range all {
		printed := b.Lang == "console" && i > 0 && all[i-1].Lang == "sh" && !strings.HasPrefix(b.Text, "$ ")
		if output, ran := said[all[max(i, 1)-1].Line]; printed && ran && !strings.Contains(term.steady(output), term.steady(b.Text)) {
			t.Errorf("%s:%d is not what the block before it prints:\n%s", page, b.Line, output)
		}
	}
	for command, words := range want {
		i := slices.IndexFunc(blocks, func(b docs.Block) bool { return strings.Contains(b.Text, command) })
		if i < 0 {
			if !strings.Contains(read(t, page), command) {
				t.Errorf("%s has no block with %q", page, command)
			}
			continue
		}
		for _, word := range words {
			if !strings.Contains(said[blocks[i].Line], word) {
				t.Errorf("%s: %q did not say %q:\n%s", page, command, word, said[blocks[i].Line])
			}
		}
	}
}

// What differs from run to run in what commands print, and what only a terminal or only some machines get.
var (
	unsteady = regexp.MustCompile(`, which runs as task task-[0-9a-f]{32} and may|, which may|[a-z]+_[0-9a-z]{20}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|\d\d:\d\d:\d\d UTC|<?\b\d[\d.hm]*s\b`)
	wrapped  = regexp.MustCompile(`\n {10}`)
	ofHere   = regexp.MustCompile(`(?m)^(page  |\[dayfly\] this machine does not enforce ).*\n`)
)

// steady is an output without that: a part of what a command prints is a part of it here too.
func (term terminal) steady(text string) string {
	text = ofHere.ReplaceAllString(wrapped.ReplaceAllString(text, " "), "")
	text = strings.NewReplacer(term.home, "/home/you", term.address, documented).Replace(text)
	return unsteady.ReplaceAllString(text, "…")
}

func installed(names ...string) string {
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return ""
}

func TestReadme_ItsBlocksWork(t *testing.T) {
	term := newTerminal(t, false)
	var err error
	if term.dir, err = filepath.Abs(root); err != nil {
		t.Fatal(err)
	}
	term.environ = append(term.environ, "DAYFLY_LISTEN="+term.address)
	code := filepath.Join(term.home, "my-infrastructure")
	for _, name := range []string{"network", "database"} {
		dir := filepath.Join(code, name)
		text := "resource \"terraform_data\" \"x\" {}\n"
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600)); err != nil { //nolint:gosec // engines are other users
			t.Fatal(err)
		}
	}
	// Code that has run before: one resource, by its own id.
	state := `{"version": 4, "terraform_version": "1.4.0", "serial": 1, "lineage": "13cf6645-c45a-779a-e9e8-09ecb59cc740", "outputs": {},
"resources": [{"mode": "managed", "type": "terraform_data", "name": "x", "provider": "provider[\"terraform.io/builtin/terraform\"]",
"instances": [{"schema_version": 0, "attributes": {"id": "1", "input": null, "output": null, "triggers_replace": null}}]}]}`
	if err := os.WriteFile(filepath.Join(code, "database", "terraform.tfstate"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	stages := read(t, ".ci/run")
	term.follow(t, "README.md", func(b docs.Block) string {
		text := strings.TrimSpace(b.Text)
		switch {
		case text == "make demo" || text == "make test":
			if !strings.Contains(stages, text) {
				t.Errorf(".ci/run does not run %q", text)
			}
			return "a stage of .ci/run of its own: " + text
		case strings.Contains(text, "dayfly run") && installed("terraform", "tofu") == "":
			return "neither terraform nor tofu is on PATH"
		}
		return ""
	}, expectations{
		"./network --op preview":  {"1 to add", "succeeded"},
		"./database --op preview": {"this run only reads: it plans on a copy", "no changes", "took over terraform.tfstate beside the code"},
	})
}

func TestTutorial_ItsBlocksWork(t *testing.T) {
	term := newTerminal(t, true)
	term.environ = append(term.environ, "DAYFLY_LISTEN="+term.address)
	if err := os.CopyFS(filepath.Join(term.home, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	term.follow(t, "docs/tutorial.md", func(b docs.Block) string {
		needs := func(word string) bool { return strings.Contains(b.Text, word) }
		if slices.ContainsFunc([]string{"basic", "tfvars", `"$plan"`, `"$update"`}, needs) && installed("terraform") == "" {
			return "terraform is not on PATH"
		}
		return ""
	}, expectations{
		"./command --op preview":   {"would deploy web", "succeeded"},
		"workspace show":           {"release = 2", "succeeded"},
		"dayfly why":               {"may change the state of workspace slow before it"},
		"--workspace slow":         {"cancelled"},
		"secret set":               {"the password is ***"},
		"dayfly state list basic":  {"terraform_data.network", "password = (sensitive)"},
		"basic --op scan":          {"no drift"},
		"basic --op destroy --yes": {"3 destroyed"},
		"./tfvars --op update":     {"3 to add", "approve"},
		`workflow show "$plan"`:    {"add      terraform_data.server[2]", "approved: wf_"},
		`logs --follow "$update"`:  {"3 added", "succeeded"},
	})
	logs, _ := filepath.Glob(filepath.Join(term.home, "terminal-*.log"))
	if len(logs) != 1 {
		t.Fatalf("got the logs %v, want that of up", logs)
	}
	if said, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(said), "open http://"+term.address+"/signin?once=") {
		t.Errorf("up printed no link: %s, %v", said, err)
	}
}

func TestAPI_ItsBlocksWork(t *testing.T) {
	term := newTerminal(t, true)
	if installed("curl") == "" {
		t.Skip("there is no curl here")
	}
	term.follow(t, "docs/api.md", func(docs.Block) string { return "" }, expectations{
		"api /v1/whoami":      {`"role":"admin"`},
		"wait_seconds":        {"working", `"done":true`},
		"/timeline":           {`"state":"succeeded"`, `"value":42`},
		"/artifacts":          {`"name":"files/report"`, "working"},
		"/v1/workspaces":      {`"kind":"directory"`},
		"/v1/audit":           {"workflow.cancel"},
		"Idempotency-Key":     {},
		"cursor":              {},
		"dayfly server":       {},
		"/v1/workflows?works": {`"items"`},
	})
}

// stub is an engine that shows the names of its environment.
const stub = `#!/bin/sh
case "$1" in
version) echo '{"terraform_version": "1.11.4"}' ;;
--version) echo 'terragrunt version v0.99.5' ;;
init) echo '{"backend": {"type": "local"}}' >"$TF_DATA_DIR/terraform.tfstate" ;;
plan) exit 2 ;;
show) echo '{"format_version": "1.2"}' ;;
*) env | cut -d= -f1 | sed 's/^/saw /'; exit 1 ;;
esac
`

// A command and an engine see the variables that docs/runs.md lists, and no others.
func TestWorkspaces_ListsTheVariablesThatACommandSees(t *testing.T) {
	term := newTerminal(t, true)
	bin := filepath.Join(term.home, "stub")
	if err := os.Mkdir(bin, 0o755); err != nil { //nolint:gosec // engines are other users
		t.Fatal(err)
	}
	for _, name := range []string{"terraform", "terragrunt"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	const rest = "\nenvironment: {SET_BY_WORKSPACE: x}\nsecrets: [{env: SECRET_OF_WORKSPACE, ref: 'file:s'}]\nvariables: {some-name: x}\n"
	said := term.run(t, []docs.Block{
		{Line: 1, Text: "mkdir -p a b c\n" +
			"cat >a/workspace.yaml <<'END'\nname: a\nengine: command\nstate: {kind: directory}\n" +
			"commands: {update: \"env | cut -d= -f1 | sed 's/^/saw /'\"}\n" +
			"hooks: [{after: run, run: \"env | cut -d= -f1 | sed 's/^/saw /'\"}]" + rest + "END\n" +
			"cat >b/workspace.yaml <<'END'\nname: b\nengine: terraform\nstate: {kind: directory}\n" +
			"hooks: [{after: plan, run: \"env | cut -d= -f1 | sed 's/^/saw /'\"}]" + rest + "END\n" +
			"cat >c/workspace.yaml <<'END'\nname: c\nengine: terragrunt" + strings.ReplaceAll(rest, "-name", "") + "END\n" +
			"export PATH=\"$PWD/stub:$PATH\" FORWARDED=x DAYFLY_LISTEN=" + term.address + "\n"},
		{Line: 2, Text: "dayfly up --env-forward-allowlist FORWARDED\n"},
		{Line: 3, Text: "echo value | dayfly secret set s\ndayfly run ./a --op update --yes --follow\n"},
		{Line: 4, Text: "dayfly run ./b --op update --yes --follow || true\n"},
		{Line: 5, Text: "dayfly run ./c --op update --yes --follow || true\n"},
	})
	seen := map[string]bool{}
	for line := range strings.Lines(said[3] + said[4] + said[5]) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "saw "); ok {
			seen[name] = true
		}
	}
	for _, name := range []string{"PWD", "OLDPWD", "SHLVL", "_"} { // the shell's own
		delete(seen, name)
	}
	stands := map[string]string{ // for names that others choose
		"env_forward_allowlist": "FORWARDED", "environment": "SET_BY_WORKSPACE", "secrets[].env": "SECRET_OF_WORKSPACE",
		"DAYFLY_VAR_NAME": "DAYFLY_VAR_some_name", "TF_VAR_NAME": "TF_VAR_some",
	}
	var want []string
	for _, row := range arch.Table(read(t, "docs/runs.md"), "The environment of a command") {
		if strings.Contains(row[1], "has a role") {
			continue // those are seen in the tests of the runner on ECS
		}
		for _, name := range arch.Code(row[0]) {
			if stand := stands[name]; stand != "" {
				name = stand
			}
			want = append(want, name)
		}
	}
	var got []string
	for name := range seen {
		got = append(got, name)
	}
	if len(got) == 0 {
		t.Fatalf("nothing was seen:\n%s\n%s\n%s", said[3], said[4], said[5])
	}
	same(t, "the variables of docs/runs.md", want, got)
}

// shown returns the command lines of dayfly that a page shows: in its blocks, and as code in its text.
func shown(doc string) []string {
	var found, texts []string
	for _, b := range docs.Blocks(doc) {
		doc = strings.Replace(doc, "```"+b.Lang+"\n"+b.Text+"```\n", "", 1)
		if b.Lang == "sh" || b.Lang == "console" {
			texts = append(texts, strings.Split(b.Text, "\n")...)
		}
	}
	texts = append(texts, arch.Code(doc)...)
	for _, text := range texts {
		_, line, ok := strings.Cut(" "+strings.Join(strings.Fields(text), " "), " dayfly ")
		if ok && !strings.HasPrefix(strings.TrimSpace(text), "#") {
			found = append(found, line)
		}
	}
	return found
}

// Each command and flag that a page shows is one of the program.
func TestPages_CommandsAndFlagsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("this builds the program")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	groups := []string{"workflow", "policy", "workspace", "state", "artifact", "secret", "hook", "pool", "project", "token", "repair", "organization", "server", "audit", "schedule", "notification", "delivery", "git-host", "issuer"}
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" { // of other versions too
			continue
		}
		for _, line := range shown(read(t, page)) {
			line, _, _ = strings.Cut(strings.NewReplacer("$(", "| ", ")", " |", ";", " | ", " #", " | ").Replace(line), "|")
			words := strings.Fields(line)
			if len(words) == 0 || strings.Trim(words[0], "abcdefghijklmnopqrstuvwxyz") != "" || words[0] == "runner" || words[0] == "preview" || words[0] == "cancel" {
				continue // a name that stands for one, the program that launchers start, or the command of a comment
			}
			command := words[0]
			if slices.Contains(groups, command) && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				command += " " + words[1]
			} else if command == "server" {
				command += " serve" // its default
			} else if command == "audit" {
				command += " list" // its default
			}
			if help[command] == "" {
				out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "dayfly"), append(strings.Fields(command), "--help")...).CombinedOutput()
				if err != nil {
					t.Errorf("%s shows dayfly %s: %s", page, command, out)
				}
				help[command] = strings.ReplaceAll(string(out), "--[no-]", "--no-") + string(out)
			}
			for _, word := range words {
				flag, _, _ := strings.Cut(word, "=")
				negated := "--[no-]" + strings.TrimPrefix(flag, "--")
				if strings.HasPrefix(flag, "--") && !strings.Contains(help[command], flag) && !strings.Contains(help[command], negated) {
					t.Errorf("%s shows dayfly %s with the flag %s, which it does not have", page, command, flag)
				}
			}
		}
	}
	if len(help) < 20 {
		t.Errorf("got %d commands in all pages, want most of the program's", len(help))
	}
}

// A page that shows a command which no test runs marks its block as console.
func TestPages_OnlyThePagesThatAreRunHaveShellBlocks(t *testing.T) {
	for _, page := range pages(t) {
		for _, b := range docs.Blocks(read(t, page)) {
			if b.Lang == "sh" && !slices.Contains([]string{"README.md", filepath.Join("docs", "tutorial.md"), filepath.Join("docs", "api.md")}, page) {
				t.Errorf("%s:%d: no test runs this sh block: mark it console", page, b.Line)
			}
		}
	}
}
