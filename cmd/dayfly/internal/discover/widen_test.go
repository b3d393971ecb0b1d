package discover_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// widened compares the source of a root module of the tree top with the directory that is wanted; empty: as it is.
func widened(t *testing.T, engine, name, top, module, dir, uses string) {
	t.Helper()
	root := filepath.Join(top, module)
	w := api.Workspace{RunSettings: api.RunSettings{Engine: engine, Source: api.Source{Directory: root}}}
	want := w.Source
	if dir != "" {
		path, _ := filepath.Rel(filepath.Join(top, dir), root)
		want = api.Source{Directory: filepath.Join(top, dir), Path: path}
	}
	if got := discover.Widen(&w); got != uses || !cmp.Equal(w.Source, want) {
		t.Errorf("%s: got %q and %+v, want %q and %+v", name, got, w.Source, uses, want)
	}
}

func TestWiden_TakesTheNearestDirectoryOfAllModules(t *testing.T) {
	call := func(source string) string { return "module \"m\" {\n  source = \"" + source + "\"\n}\n" }
	for name, tc := range map[string]struct {
		main string
		dir  string // from the top; empty: as it is
		uses string
	}{
		"none":              {"", "", ""},
		"below":             {call("./own"), "", ""},
		"above":             {call("../modules/vpc"), "repo/envs", "../modules/vpc"},
		"further above":     {call("../../modules/vpc"), "repo", "../../modules/vpc"},
		"by way of another": {call("./deep"), "repo", "../../modules/vpc"},
		"its own parent":    {call("../.."), "repo", "../.."},
		"two":               {call("../modules/vpc") + call("../../modules/vpc"), "repo", "../modules/vpc"},
		"a loop":            {call("../../modules/loop"), "repo", "../../modules/loop"},
		"not there":         {call("../../modules/none"), "", ""},
		"no directory":      {call("../../file"), "", ""},
		"a comment":         {"# " + call("../../modules/vpc"), "", ""},
		"of a registry":     {call("terraform-aws-modules/vpc/aws"), "", ""},
		"of git":            {call("git::https://example.com/x.git//../y"), "", ""},
		"of another block":  {"resource \"x\" \"y\" {\n  source = \"../../modules/vpc\"\n}\n", "", ""},
		"over the top":      {call("../../../repo/modules//vpc"), ".", "../../modules/vpc"},
		"over and back":     {call("../prod/own"), "repo/envs", "own"},
		"an unclosed block": {call("../../modules/vpc") + "module {", "repo", "../../modules/vpc"},
	} {
		top := tree(t, map[string]string{
			"repo/envs/prod/main.tf": tc.main, "repo/envs/prod/own/main.tf": "", "repo/envs/prod/deep/main.tf": call("../../../modules/vpc"),
			"repo/envs/modules/vpc/main.tf": "", "repo/modules/vpc/main.tf": "", "repo/modules/loop/main.tf": call("../loop") + call("../../envs/prod"), "repo/file": "",
		})
		widened(t, api.EngineTerraform, name, top, "repo/envs/prod", tc.dir, tc.uses)
	}
}

func TestWiden_TakesTheTargetsOfLinks(t *testing.T) {
	shared := map[string]string{
		"repo/.git/HEAD": "", "repo/common/names.tf": "", "repo/live/main.tf": "", "repo/dir/more.tf": "->../far/more.tf", "repo/far/more.tf": "",
		"repo/live/way": "->../common", "repo/modules/vpc/main.tf": "", "repo/modules/vpc/names.tf": "->../../common/names.tf", "other/x.tf": "",
		"repo/live/near/main.tf": "", "repo/live/other/names.tf": "->../../common/names.tf",
	}
	call := "module \"m\" {\n  source = \"../modules/vpc\"\n}\n"
	for name, tc := range map[string]struct {
		file, content string // of the root module repo/live/net
		dir           string // from the top; empty: as it is
		uses          string
	}{
		"a file":               {"names.tf", "->../../common/names.tf", "repo", "../../common/names.tf"},
		"below the root":       {"policies/a/names.tf", "->../../../../common/names.tf", "repo", "../../common/names.tf"},
		"a near file":          {"names.tf", "->../main.tf", "repo", "../main.tf"}, // the other's link is copied too
		"within the root":      {"names.tf", "->main.tf", "", ""},
		"a directory of links": {"dir", "->../../dir", "repo", "../../dir"},
		"by way of another":    {"names.tf", "->../way/names.tf", "repo", "../../common"},
		"of a module":          {"call.tf", strings.ReplaceAll(call, "../", "../../"), "repo", "../../modules/vpc"},
		"of a neighbour":       {"call.tf", strings.ReplaceAll(call, "../modules/vpc", "../near"), "repo", "../near"},
		"over the top":         {"names.tf", "->../../../repo/common/names.tf", "", ""},
		"out of the clone":     {"names.tf", "->../../../other/x.tf", "", ""},
		"to nothing":           {"names.tf", "->../../common/none.tf", "", ""},
		"absolute":             {"names.tf", "->/etc/hostname", "", ""},
		"to itself":            {"names.tf", "->names.tf", "", ""},
		"in .terraform":        {".terraform/names.tf", "->../../../common/names.tf", "", ""},
	} {
		files := maps.Clone(shared)
		files["repo/live/net/main.tf"], files["repo/live/net/"+tc.file] = "", tc.content
		top := tree(t, files)
		widened(t, api.EngineTerraform, name, top, "repo/live/net", tc.dir, tc.uses)
	}
}

func TestWiden_TakesThePackagesBesideAProgram(t *testing.T) {
	for name, tc := range map[string]struct {
		files     map[string]string // below repo
		dir, uses string
	}{
		"none":                  {map[string]string{"apps/api/package.json": `{"dependencies": {"a": "^1.0"}}`}, "", ""},
		"a file":                {map[string]string{"apps/api/package.json": `{"dependencies": {"a": "file:../lib"}}`}, "repo/apps", "../lib"},
		"a link, by another":    {map[string]string{"apps/api/package.json": `{"devDependencies": {"a": "link:../lib"}}`, "apps/lib/package.json": `{"dependencies": {"b": "file:../../libs/b"}}`}, "repo", "../lib"},
		"an archive":            {map[string]string{"apps/api/package.json": `{"dependencies": {"a": "file:../../a-1.0.tgz"}}`, "a-1.0.tgz": ""}, "repo", "../../a-1.0.tgz"},
		"a workspace of pnpm":   {map[string]string{"apps/api/package.json": `{"dependencies": {"a": "workspace:*"}}`, "pnpm-workspace.yaml": ""}, "repo", "../.."},
		"a workspace of npm":    {map[string]string{"apps/api/package.json": "{}", "package.json": `{"workspaces": ["apps/*"]}`}, "repo", "../.."},
		"a workspace of yarn":   {map[string]string{"apps/api/package.json": "{}", "package.json": `{"workspaces": {"packages": ["apps/**"]}}`}, "repo", "../.."},
		"a workspace of others": {map[string]string{"apps/api/package.json": "{}", "package.json": `{"workspaces": ["libs/*"]}`, "pnpm-workspace.yaml": ""}, "", ""},
		"a path of uv":          {map[string]string{"apps/api/pyproject.toml": "[tool.uv.sources]\na = { path = \"../lib\", editable = true }\n# b = { path = \"../../libs/b\" }\n"}, "repo/apps", "../lib"},
		"a workspace of uv":     {map[string]string{"apps/api/pyproject.toml": "[tool.uv.sources]\na = { workspace = true }\n", "pyproject.toml": "[tool.uv.workspace]\nmembers = [\"apps/*\"]\n"}, "repo", "../.."},
		"a path of poetry":      {map[string]string{"apps/api/pyproject.toml": "[tool.poetry.dependencies]\na = {path = '../../libs/b'}\n"}, "repo", "../../libs/b"},
		"requirements":          {map[string]string{"apps/api/requirements.txt": "pulumi>=3\n-e ../lib\n"}, "repo/apps", "../lib"},
		"a module of Go":        {map[string]string{"apps/api/go.mod": "module x\n\nreplace example.com/b => ../../libs/b\n// replace c => ../../..\n"}, "repo", "../../libs/b"},
		"what is not there":     {map[string]string{"apps/api/package.json": `{"dependencies": {"a": "file:../none", "b": 5}}`, "apps/api/requirements.txt": "../none"}, "", ""},
		"out of the repository": {map[string]string{"apps/api/package.json": "{}", "../package.json": `{"workspaces": ["repo/apps/*"]}`}, "", ""},
	} {
		files := map[string]string{"repo/.git/HEAD": "", "repo/apps/api/Pulumi.yaml": "name: api\nruntime: nodejs\n", "repo/apps/lib/x": "", "repo/libs/b/x": ""}
		for file, content := range tc.files {
			files[filepath.Join("repo", file)] = content
		}
		widened(t, api.EnginePulumi, name, tree(t, files), "repo/apps/api", tc.dir, tc.uses)
	}
}
