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
func widened(t *testing.T, name, top, module, dir, uses string) {
	t.Helper()
	root := filepath.Join(top, module)
	w := api.Workspace{RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: root}}}
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
		widened(t, name, top, "repo/envs/prod", tc.dir, tc.uses)
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
		widened(t, name, top, "repo/live/net", tc.dir, tc.uses)
	}
}
