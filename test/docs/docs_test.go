package docs_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/arch"
	"github.com/dayfly-dev/dayfly/test/docs"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages are all documents of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "dist", "testdata", "node_modules"}, d.Name()):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			name, err := filepath.Rel(root, path)
			names = append(names, name)
			return err
		}
		return nil
	})
	if err != nil || len(names) < 10 {
		t.Fatalf("got %d documents, %v", len(names), err)
	}
	return names
}

func TestPages_LinksAndAnchorsLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, target := range docs.Links(read(t, page)) {
			path, anchor, _ := strings.Cut(target, "#")
			name := page
			if path != "" {
				name = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			} else if anchor != "" && !slices.Contains(docs.Anchors(read(t, name)), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", page, target, name)
			}
		}
	}
}

func TestPages_ProseEndsBeforeTheLimit(t *testing.T) {
	for _, page := range pages(t) {
		for _, n := range docs.LongLines(read(t, page)) {
			t.Errorf("%s:%d does not end before column %d", page, n, docs.LineLimit)
		}
	}
}

// A longer page is for more than one reader.
func TestPages_HaveAtMost400Lines(t *testing.T) {
	for _, page := range pages(t) {
		if n := strings.Count(read(t, page), "\n"); filepath.Dir(page) == "docs" && n > 400 {
			t.Errorf("%s has %d lines; the limit is 400", page, n)
		}
	}
}

// README is for the first ten minutes, and leads to every other page; to those for who changes Dayfly by way of
// ARCHITECTURE.md.
func TestReadme_IsShortAndLeadsToEveryPage(t *testing.T) {
	text := read(t, "README.md")
	if most := 8 << 10; len(text) > most {
		t.Errorf("README.md has %d bytes; the limit is %d", len(text), most)
	}
	links := append(docs.Links(text), docs.Links(read(t, "ARCHITECTURE.md"))...)
	for _, page := range pages(t) {
		if filepath.Dir(page) == "docs" && !slices.Contains(links, page) {
			t.Errorf("neither README.md nor ARCHITECTURE.md links to %s", page)
		}
	}
}

// ARCHITECTURE.md is read as a whole by who changes Dayfly for the first time. A sentence of it, or of SECURITY.md, that
// is too long is read twice.
func TestPages_ArchitectureIsShortAndItsSentencesToo(t *testing.T) {
	if size := len(read(t, "ARCHITECTURE.md")); size > 24<<10 {
		t.Errorf("ARCHITECTURE.md has %d bytes; the limit is %d", size, 24<<10)
	}
	for _, page := range []string{"ARCHITECTURE.md", "SECURITY.md"} {
		for _, sentence := range docs.Sentences(read(t, page)) {
			if n := len(strings.Fields(sentence)); n > 40 {
				t.Errorf("%s: a sentence has %d words: %s", page, n, sentence)
			}
		}
	}
}

var target = regexp.MustCompile("(?:`|\\$ )make ([a-z][a-z0-9-]*)")

func TestPages_TargetsOfMakeExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" { // of other versions too
			continue
		}
		for _, m := range target.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s names make %s, and the Makefile has no such target", page, m[1])
			}
		}
	}
}

// described returns what the first cells below some headings set as code, in order.
func described(t *testing.T, page string, headings ...string) []string {
	t.Helper()
	var names []string
	for _, heading := range headings {
		rows := arch.Table(read(t, page), heading)
		if len(rows) == 0 {
			t.Fatalf("%s has no table below %q", page, heading)
		}
		for _, row := range rows {
			names = append(names, arch.Code(row[0])...)
		}
	}
	return names
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// fields are the fields of the workspace file, by their paths: those of api.Workspace that people write.
func fields(t reflect.Type, parent string) []string {
	said := []string{"id", "version", "applied", "state.key", "state.default"} // by the control plane alone
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue // its fields follow
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = parent + name
		if slices.Contains(said, name) {
			continue
		}
		names = append(names, name)
		inner, dot := f.Type, "."
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				dot = "[]."
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			names = append(names, fields(inner, name+dot)...)
		}
	}
	return names
}

// Later versions are held to the recording of each release.
func TestChangelog_EachReleaseHasARecording(t *testing.T) {
	var want, got []string
	for _, found := range regexp.MustCompile(`(?m)^## \[([0-9.]+)\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1) {
		want = append(want, found[1])
	}
	kept, err := os.ReadDir(filepath.Join(root, "test", "upgrade", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range kept {
		got = append(got, dir.Name())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("releases without a recording in test/upgrade/testdata, or the reverse (-releases +recordings): %s", diff)
	}
}

func TestWorkspaces_DescribesEveryField(t *testing.T) {
	got := described(t, "docs/workspaces.md", "Fields", "Files")
	got = append(got, described(t, "docs/sources.md", "Sources")...)
	got = append(got, described(t, "docs/state.md", "State")...)
	got = append(got, described(t, "docs/secrets.md", "Secrets", "Private modules")...)
	got = append(got, described(t, "docs/runs.md", "Hooks")...)
	same(t, "the fields of the workspace file in docs", fields(reflect.TypeFor[api.Workspace](), ""), got)
}

func TestConfiguration_DescribesTheSettingsThatAct(t *testing.T) {
	want := config.Keys(config.Agent)
	for _, key := range config.Keys(config.Up) {
		if !slices.Contains(want, key) {
			want = append(want, key)
		}
	}
	got := described(t, "docs/configuration.md", "Settings of up and agent")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the settings of docs/configuration.md (-want +got):\n%s", diff)
	}
}

func TestConfiguration_TellsTheDefaults(t *testing.T) {
	d := config.Default()
	want := map[string]any{
		"deploy_target": d.DeployTarget, "runner_network": d.RunnerNetwork, "single_run": d.SingleRun, "container": d.Container,
		"spot": d.Spot, "launch_rate": d.LaunchRate, "assign_public_ip": d.AssignPublicIP, "request_retry_count": d.RequestRetryCount,
		"circuit_breaker_failures": d.CircuitBreakerFailures, "polling_interval": d.PollingInterval,
		"job_status_loop_interval": d.JobStatusLoopInterval, "request_timeout": d.RequestTimeout, "request_retry_wait": d.RequestRetryWait,
		"pull_image": d.PullImage, "polling_interval_override": d.PollingIntervalOverride, "http_server_address": d.HTTPServerAddress,
		"http_server_port": d.HTTPServerPort, "log_jobs": d.LogJobs, "syslog": d.Syslog,
		"request_retry_max_wait": d.RequestRetryMaxWait, "circuit_breaker_timeout": d.CircuitBreakerTimeout,
	}
	for _, row := range arch.Table(read(t, "docs/configuration.md"), "Settings of up and agent") {
		key := arch.Code(row[0])[0]
		value, ok := want[key]
		if !ok {
			continue
		}
		delete(want, key)
		text := strings.TrimSuffix(fmt.Sprint(value), "0s") // 1m0s is written 1m
		if got := strings.Trim(row[1], "`"); got != fmt.Sprint(value) && got != text {
			t.Errorf("docs/configuration.md says that %s is %s by default, and it is %v", key, got, value)
		}
	}
	for key := range want {
		t.Errorf("docs/configuration.md says no default of %s", key)
	}
}

// template is what the tests need of a transformed template.
type template struct {
	Parameters map[string]struct{ Default any }
	Resources  map[string]struct{ Type string }
}

func transformed(t *testing.T, name string) (out template) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "infra/transformed/"+name+".json")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// tablesBelow returns the tables of a section, one after the other.
func tablesBelow(doc, heading string) [][]arch.Row {
	var out [][]arch.Row
	_, section, _ := strings.Cut(doc, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for {
		rows := arch.Table("# here\n"+section, "here")
		if len(rows) == 0 {
			return out
		}
		out = append(out, rows)
		last := "| " + strings.Join(rows[len(rows)-1], " | ") + " |\n"
		_, section, _ = strings.Cut(section, last)
	}
}

func TestAWS_DescribesEveryParameterWithItsDefault(t *testing.T) {
	tables := tablesBelow(read(t, "docs/aws-parameters.md"), "Parameters")
	stacks := []string{"pool", "controlplane", "artifacts", "deployer", "workspace-role"}
	for _, heading := range []string{"Permissions", "The role of a workspace"} {
		tables = append(tables, tablesBelow(read(t, "docs/aws-permissions.md"), heading)[0])
	}
	if len(tables) != len(stacks) {
		t.Fatalf("docs/aws-parameters.md and docs/aws-permissions.md have %d tables of parameters, want one for each of %v", len(tables), stacks)
	}
	for i, stack := range stacks {
		want, got := []string{}, []string{}
		for name, p := range transformed(t, stack).Parameters {
			text := "required"
			switch {
			case p.Default == "":
				text = "none"
			case p.Default != nil:
				text = fmt.Sprint(p.Default)
			}
			want = append(want, name+" "+text)
		}
		for _, row := range tables[i] {
			got = append(got, arch.Code(row[0])[0]+" "+strings.Trim(row[1], "`"))
		}
		same(t, "the parameters of stack "+stack, want, got)
	}
}

func TestFailures_ExplainsEveryAlarm(t *testing.T) {
	var want, got []string
	for _, stack := range []string{"pool", "controlplane", "network", "artifacts"} {
		for name, r := range transformed(t, stack).Resources {
			if r.Type == "AWS::CloudWatch::Alarm" {
				want = append(want, name)
			}
		}
	}
	for text := range strings.Lines(read(t, "docs/repair.md")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(text), "### "); ok && strings.HasSuffix(name, "Alarm") {
			got = append(got, name)
		}
	}
	same(t, "the alarms of docs/repair.md", want, got)
}

func TestFailures_ExplainsEveryReason(t *testing.T) {
	var want []string
	for _, r := range workflow.Reasons() {
		want = append(want, string(r))
	}
	same(t, "the reasons of docs/repair.md", want, described(t, "docs/repair.md", "Why a run failed"))
}

func TestAPI_ListsEveryCodeWithItsStatus(t *testing.T) {
	want := []string{api.CodeInternal + " 500", "no_route 404", "method_not_allowed 405", "invalid_media_type 415", "request_timeout 408"}
	for _, k := range api.Kinds() {
		want = append(want, fmt.Sprint(k.Code, " ", k.Status))
	}
	var got, named []string
	for _, row := range arch.Table(read(t, "docs/api.md"), "Errors") {
		got, named = append(got, arch.Code(row[0])[0]+" "+row[1]), append(named, arch.Code(row[0])[0])
	}
	same(t, "the codes of docs/api.md", want, got)

	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Words []any `json:"x-extensible-enum"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "docs/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, code := range doc.Components.Schemas["Problem"].Properties["code"].Words {
		described = append(described, fmt.Sprint(code))
	}
	same(t, "the codes of docs/api.md and of docs/openapi.json", described, named)
}

func TestGlossary_HasEachWordOnceInOrder(t *testing.T) {
	var words []string
	for _, row := range arch.Table(read(t, "docs/glossary.md"), "Glossary") {
		words = append(words, row[0])
	}
	if want := slices.Compact(slices.Sorted(slices.Values(words))); !slices.Equal(want, words) {
		t.Errorf("the words of the glossary (-want +got):\n%s", cmp.Diff(want, words))
	}
}

const made = "# A page\n[one](x.md#a-b) [two](https://example.com)\n## A `b`: c_d\n## Twice\n## Twice\n" +
	"```sh\n# no heading\n[no](link.md)\n```\ntext\n```console\n$ x\n```\n"

func TestRead_BlocksLinksAndAnchors(t *testing.T) {
	wantBlocks := []docs.Block{{Line: 7, Lang: "sh", Text: "# no heading\n[no](link.md)\n"}, {Line: 12, Lang: "console", Text: "$ x\n"}}
	if diff := cmp.Diff(wantBlocks, docs.Blocks(made)); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"x.md#a-b"}, docs.Links(made)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a-page", "a-b-c_d", "twice", "twice-1"}, docs.Anchors(made)); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
	long := strings.Repeat("x", docs.LineLimit)
	if got := docs.LongLines("short\n" + long + "\n| " + long + " |\n```\n" + long + "\n```\n" + long[1:] + "\n"); !slices.Equal(got, []int{2}) {
		t.Errorf("got long lines %v, want the second alone", got)
	}
}

// Each path in "Where do I add ..." is there, unless it is marked as new, and each name that is given with it stands in
// one of the files of its item.
func TestArchitecture_WhereToAddNamesWhatThereIs(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "\n## Where do I add ...\n")
	section, _, _ = strings.Cut(section, "\n## ")
	items := regexp.MustCompile(`(?m)^\d+\. (.*(?:\n +\S.*)*)`).FindAllStringSubmatch(section, -1)
	if len(items) < 30 {
		t.Fatalf("got %d items", len(items))
	}
	span := regexp.MustCompile("`([^`]+)`( \\(new\\))?")
	identifier := regexp.MustCompile(`^[A-Za-z]\w*$`)
	for _, item := range items {
		var files, names []string
		for _, s := range span.FindAllStringSubmatch(item[1], -1) {
			_, err := os.Stat(filepath.Join(root, s[1]))
			switch {
			case s[2] != "":
				if err == nil {
					t.Errorf("%s is marked as new, and it is there", s[1])
				}
			case err == nil && strings.ContainsAny(s[1], "/."):
				files = append(files, s[1])
			case strings.ContainsAny(s[1], "/.") && !strings.Contains(s[1], " "):
				t.Errorf("%s: %v", s[1], err)
			case identifier.MatchString(s[1]):
				names = append(names, s[1])
			}
		}
		var text strings.Builder
		for _, file := range files {
			text.WriteString(read(t, file))
		}
		for _, name := range names {
			if !regexp.MustCompile(`\b`+name+`\b`).MatchString(text.String()) && !slices.ContainsFunc(arch.Names(), func(p string) bool { return filepath.Base(p) == name }) {
				t.Errorf("%s does not stand in %v", name, files)
			}
		}
	}
}
