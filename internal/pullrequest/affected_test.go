package pullrequest_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// inRepository is a workspace of the repository that these tests change.
func inRepository(name, below string, filters ...string) api.Workspace {
	w := api.Workspace{Name: name, RunSettings: api.RunSettings{Source: api.Source{Git: &api.GitSource{URL: "git@Git.example.com:Team/Infra.git", Path: below}}}}
	if len(filters) > 0 {
		w.PullRequests = &api.PullRequests{Paths: filters}
	}
	return w
}

func TestAffected_SaysWhichFileConcernsAWorkspaceAndWhy(t *testing.T) {
	disabled := inRepository("disabled", "")
	disabled.PullRequests = &api.PullRequests{IsDisabled: true}
	elsewhere := inRepository("elsewhere", "")
	elsewhere.Source.Git.URL = "https://git.example.com/team/other"
	all := []api.Workspace{
		inRepository("whole", ""),
		inRepository("network", "live/network", "modules/vpc/**", "!**/*.md"),
		inRepository("dns", "./live/dns/", "*.json", "modules/*/dns?.tf"),
		disabled, elsewhere,
		{Name: "directory", RunSettings: api.RunSettings{Source: api.Source{Directory: "/srv/infra"}}},
	}
	for _, c := range []struct {
		changed string
		want    []string
	}{
		{"live/network/main.tf", []string{"whole: live/network/main.tf changed", "network: live/network/main.tf is below live/network"}},
		{"live/network/README.md", []string{"whole: live/network/README.md changed"}},
		{"live/network2/main.tf", []string{"whole: live/network2/main.tf changed"}},
		{"live/network", []string{"whole: live/network changed"}},
		{"modules/vpc/deep/er/main.tf", []string{"whole: modules/vpc/deep/er/main.tf changed", "network: modules/vpc/deep/er/main.tf matches modules/vpc/**"}},
		{"modules/vpc/README.md", []string{"whole: modules/vpc/README.md changed"}},
		{"README.md", []string{"whole: README.md changed"}},
		{"versions.json", []string{"whole: versions.json changed", "dns: versions.json matches *.json"}},
		{"live/versions.json", []string{"whole: live/versions.json changed"}},
		{"modules/a/dnsé.tf", []string{"whole: modules/a/dnsé.tf changed", "dns: modules/a/dnsé.tf matches modules/*/dns?.tf"}},
		{"modules/a/b/dns1.tf", []string{"whole: modules/a/b/dns1.tf changed"}},
		{"live/dns/main.tf", []string{"whole: live/dns/main.tf changed", "dns: live/dns/main.tf is below live/dns"}},
	} {
		var got []string
		for _, w := range pullrequest.Affected(all, "git.example.com", "team/infra", "", []string{c.changed}) {
			got = append(got, w.Name+": "+w.Why)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.changed, diff)
		}
	}
	if got := pullrequest.Affected(all, "git.example.com", "team/infra", "", nil); len(got) != 0 {
		t.Errorf("no file changed, and it concerns %v", got)
	}
	if got := pullrequest.Of(all, "git.example.com", "team/infra", ""); len(got) != 3 {
		t.Errorf("got %d workspaces of the repository, want 3", len(got))
	}
}

func TestCheckSettings_RefusesWhatIsNotAPathFilter(t *testing.T) {
	for filter, want := range map[string]string{
		"modules/**": "", "**/*.tf": "", "!a/**/b?.md": "", "a b/ü*": "", "**": "",
		strings.Repeat("a", 255): "", strings.Repeat("a", 256): "longer than 255 bytes",
		"": "is empty", "!": "is empty", "/a": "not a path", "a/": "not a path", "./a": "not a path", "a//b": "not a path", "a/../b": "not a path",
		"a/**.tf": "** beside", "***": "** beside", "*.{tf,json}": "do not know", "[ab].tf": "do not know", `a\*`: "do not know",
		"a\nb": "characters that", "a\xff": "characters that",
	} {
		err := pullrequest.CheckSettings(inRepository("w", "", filter))
		if want == "" && err != nil || want != "" && (!errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", filter, err, want)
		}
	}
	if err := pullrequest.CheckSettings(inRepository("w", "", slices.Repeat([]string{"a"}, 51)...)); err == nil {
		t.Error("51 filters were taken")
	}
	w := inRepository("w", "", "a")
	w.Source = api.Source{Directory: "/srv"}
	if err := pullrequest.CheckSettings(w); err == nil {
		t.Error("a workspace without a git source was taken")
	}
}

// A second way to match, segment by segment, with path.Match for each.
func matches(glob, file []string) bool {
	switch {
	case len(glob) == 0:
		return len(file) == 0
	case glob[0] == "**" && len(glob) == 1:
		return len(file) > 0
	case glob[0] == "**":
		return matches(glob[1:], file) || len(file) > 0 && matches(glob, file[1:])
	case len(file) == 0:
		return false
	}
	ok, err := path.Match(glob[0], file[0])
	return err == nil && ok && matches(glob[1:], file[1:])
}

func FuzzAffected_MatchesAsASecondReading(f *testing.F) {
	for _, s := range [][2]string{
		{"a/**/b", "a/b"}, {"a/**/b", "a/x/y/b"}, {"**", "a/b"}, {"**/x*", "x"}, {"a/*", "a/"}, {"?é*", "aéb"}, {"a/**", "a"}, {"**/**/a", "a"}, {".*", ".x"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, glob, file string) {
		w := inRepository("w", "never", glob)
		if pullrequest.CheckSettings(w) != nil || strings.Count(glob, "**") > 5 || strings.HasPrefix(glob, "!") || strings.HasPrefix(file, "never/") || file == "" ||
			path.Clean("/"+file) != "/"+file || len(file) > 200 || strings.ToValidUTF8(file, "") != file {
			return
		}
		got := len(pullrequest.Affected([]api.Workspace{w}, "git.example.com", "team/infra", "", []string{file})) == 1
		if want := matches(strings.Split(glob, "/"), strings.Split(file, "/")); got != want {
			t.Errorf("%q and %q: got %v, want %v", glob, file, got, want)
		}
	})
}

// A workspace that follows tags follows no branch, and cannot say which pull requests preview it.
func TestOf_AVersionIsOfNoBranch(t *testing.T) {
	w := api.Workspace{Name: "w", RunSettings: api.RunSettings{Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/team/infra.git", Version: "~> 1.0"}}}}
	for _, base := range []string{"", "main"} {
		if got := pullrequest.Of([]api.Workspace{w}, "git.example.com", "team/infra", base); len(got) != 0 {
			t.Errorf("of base %q: got %v", base, got)
		}
	}
	for _, settings := range []api.PullRequests{{}, {OnMerge: workflow.Update}, {IsDisabled: true}} {
		want := workflow.ErrInvalid
		if settings.IsDisabled {
			want = nil
		}
		w.PullRequests = &settings
		if err := pullrequest.CheckSettings(w); !errors.Is(err, want) {
			t.Errorf("%+v: got %v, want %v", settings, err, want)
		}
	}
}

func TestOf_KeepsToTheBranch(t *testing.T) {
	of := func(ref string) api.Workspace {
		return api.Workspace{Name: "w", RunSettings: api.RunSettings{Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/team/infra.git", Ref: ref}}}}
	}
	for ref, want := range map[string]bool{"": true, "main": true, "refs/heads/main": true, "staging": false, "v1.2.0": false} {
		if got := len(pullrequest.Of([]api.Workspace{of(ref)}, "git.example.com", "team/infra", "main")) == 1; got != want {
			t.Errorf("a workspace of ref %q: got %t, want %t", ref, got, want)
		}
		if len(pullrequest.Of([]api.Workspace{of(ref)}, "git.example.com", "team/infra", "")) != 1 {
			t.Errorf("a workspace of ref %q does not count where the branch is not known", ref)
		}
	}
}
