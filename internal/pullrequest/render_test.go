package pullrequest_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var update = flag.Bool("update", false, "write the golden files anew")

// previewed is a preview that ended, with a plan of these resources.
func previewed(name string, resources ...api.ResourceChange) pullrequest.Preview {
	var c api.Changes
	for _, r := range resources {
		switch r.Action {
		case "create":
			c.Add++
		case "update":
			c.Change++
		case "delete":
			c.Destroy++
		case "replace":
			c.Add, c.Destroy, c.Replace = c.Add+1, c.Destroy+1, c.Replace+1
		}
		c.Resources = append(c.Resources, r)
	}
	return pullrequest.Preview{
		Run:  api.Workflow{ID: "wf_" + name, Workspace: name, Operation: workflow.Preview, State: workflow.Succeeded},
		Plan: &api.Plan{Workflow: "wf_" + name, Workspace: name, Changes: c},
		URL:  "https://dayfly.example.com/runs/wf_" + name,
	}
}

func reviewed(p pullrequest.Preview, status string) pullrequest.Preview {
	plan := *p.Plan
	plan.Review = &api.Review{Status: status}
	p.Plan = &plan
	return p
}

func inState(p pullrequest.Preview, s workflow.State, why workflow.Reason) pullrequest.Preview {
	p.Run.State, p.Run.Reason, p.Plan = s, why, nil
	return p
}

func applied(p pullrequest.Preview, s workflow.State) pullrequest.Preview {
	p = reviewed(p, api.ReviewApproved)
	p.Apply = &api.Workflow{ID: p.Run.ID + "2", Workspace: p.Run.Workspace, State: s}
	if s == workflow.Failed {
		p.Apply.Reason = workflow.ReasonPlanStale
	}
	return p
}

var (
	create  = api.ResourceChange{Address: `aws_subnet.a["x|y"]`, Action: "create"}
	change  = api.ResourceChange{Address: "aws_vpc.main", Action: "update", Changed: []string{"tags"}}
	remove  = api.ResourceChange{Address: "module.old.aws_eip.nat", Action: "delete"}
	replace = api.ResourceChange{Address: "aws_db_instance.main", Action: "replace", Forces: []string{"engine", "storage"}, From: "aws_db_instance.was"}
)

// comments are the cases of the golden files, and of the statuses that go with them.
func comments() map[string]struct {
	c             pullrequest.Comment
	state, status string
	silent        bool
} {
	type out = struct {
		c             pullrequest.Comment
		state, status string
		silent        bool
	}
	of := func(previews ...pullrequest.Preview) pullrequest.Comment {
		return pullrequest.Comment{Organization: "default", Key: "infra", Commit: head, Previews: previews}
	}
	with := func(c pullrequest.Comment, f func(*pullrequest.Comment)) pullrequest.Comment {
		f(&c)
		return c
	}
	refused := pullrequest.Preview{Run: api.Workflow{Workspace: "dns"}, Refused: "workspace dns: pool trusted is not assigned to it"}
	outputs := previewed("outputs")
	outputs.Plan.Changes.Outputs = []api.OutputChange{{Name: "subnet_id", Action: "update"}}
	cut := previewed("large", create)
	cut.Plan.Truncated = true
	return map[string]out{
		"none":      {of(), "success", "the change concerns no workspace", true},
		"unchanged": {of(previewed("dns"), reviewed(previewed("network"), api.ReviewEmpty)), "success", "2 workspaces: 2 without changes", true},
		"waiting": {
			with(of(previewed("dns"), reviewed(previewed("network", create, change, replace, remove), api.ReviewWaiting)), func(c *pullrequest.Comment) { c.Commands = true }),
			"success", "2 workspaces: 1 waiting for approval, 1 without changes", false,
		},
		"pipeline": {of(previewed("network", change), outputs, cut), "success", "3 workspaces: 3 planned", false},
		"running": {
			of(inState(previewed("dns"), workflow.Running, ""), inState(previewed("network"), workflow.Claimed, ""), previewed("same")),
			"pending", "3 workspaces: 1 preview running, 1 preview claimed, 1 without changes", true,
		},
		"failed": {
			of(inState(previewed("network"), workflow.Failed, workflow.ReasonStepFailed), refused, inState(previewed("web"), workflow.Cancelled, ""), previewed("app", change)),
			"failure", "4 workspaces: 1 not previewed, 1 failed, 1 cancelled, 1 planned", false,
		},
		"applied": {
			of(applied(previewed("network", create), workflow.Succeeded), applied(previewed("dns", remove), workflow.Failed), applied(previewed("web", change), workflow.Running)),
			"failure", "3 workspaces: 1 apply failed, 1 applied, 1 apply running", false,
		},
		"decided": {
			of(reviewed(previewed("network", create), api.ReviewRejected), reviewed(previewed("dns", create), api.ReviewExpired), reviewed(previewed("web", create), api.ReviewApproved)),
			"failure", "3 workspaces: 1 not approved in time, 1 rejected, 1 approved", false,
		},
		"held": {
			with(of(), func(c *pullrequest.Comment) {
				c.Held, c.Commands = "mallory has no write access to example/infra", true
				c.Notes = []string{`the comment of "@mallory" was not followed: <b>who</b> may apply?`}
			}),
			"pending", "nothing is previewed until this commit is released", false,
		},
		"posted": {with(of(previewed("dns")), func(c *pullrequest.Comment) { c.Posted = true }), "success", "1 workspace: 1 without changes", false},
	}
}

func TestRender_IsAsTheGoldenFiles(t *testing.T) {
	for name, c := range comments() {
		got := pullrequest.Render(c.c, pullrequest.GitHubLimit)
		golden := filepath.Join("testdata", "comment-"+name+".md")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		checkComment(t, c.c, pullrequest.GitHubLimit)
		if state, status := pullrequest.Status(c.c); state != c.state || status != c.status {
			t.Errorf("%s: got %s, %q, want %s, %q", name, state, status, c.state, c.status)
		}
		if got := pullrequest.Silent(c.c); got != c.silent {
			t.Errorf("%s: silent is %v", name, got)
		}
	}
}

func TestRender_LeavesOutWhatMattersLeastAndSaysSo(t *testing.T) {
	many := func(action string) (out []api.ResourceChange) {
		for range 300 {
			out = append(out, api.ResourceChange{Action: action, Address: strings.Repeat("a", 100)})
		}
		return out
	}
	c := pullrequest.Comment{Organization: "default", Key: "x", Commit: head, Previews: []pullrequest.Preview{
		previewed("same"), previewed("adds", many("create")...), previewed("other", many("update")...), previewed("destroys", many("delete")...),
	}}
	got := pullrequest.Render(c, pullrequest.GitHubLimit)
	if n := strings.Count(got, "-   destroy"); n != 300 {
		t.Errorf("%d of 300 destroyed resources are listed", n)
	}
	if n := strings.Count(got, "+   add"); n == 0 || n == 300 || !strings.Contains(got, "    and "+strings.TrimSpace(strings.Split(strings.SplitAfter(got, "    and ")[1], " ")[0])+" more\n") {
		t.Errorf("%d of 300 added resources are listed", n)
	}
	if !strings.Contains(got, "The changes of `adds`, `other` are not all shown here") || strings.Contains(got, "!   change") {
		t.Errorf("the omission is not mentioned: %s", got[len(got)-400:])
	}
	if all := pullrequest.Render(c, pullrequest.GitLabLimit); strings.Contains(all, "not all shown") || len(all) < 90_000 {
		t.Errorf("%d bytes, and not all is shown", len(all))
	}
	c.Previews = nil
	for range 2000 {
		c.Previews = append(c.Previews, previewed("network", create))
	}
	if got := pullrequest.Render(c, pullrequest.GitHubLimit); !strings.Contains(got, "workspaces are not in the table") || len(got) > pullrequest.GitHubLimit {
		t.Errorf("%d bytes", len(got))
	}
}

var tags = regexp.MustCompile(`^(</?(details|summary|code)>)`)

// checkComment checks how a host renders a comment: nothing foreign outside code. It reads markdown by itself, as
// far as a comment has it.
func checkComment(t *testing.T, c pullrequest.Comment, limit int) {
	t.Helper()
	got := pullrequest.Render(c, limit)
	first, rest, _ := strings.Cut(got, "\n")
	if first != pullrequest.Marker(c.Organization, c.Key) || !strings.HasPrefix(first, "<!-- dayfly:") || strings.Index(first, "-->") != len(first)-3 {
		t.Fatalf("the first line is %q", first)
	}
	if len(got) > limit || !utf8.ValidString(got) {
		t.Fatalf("%d bytes of %d, valid: %v", len(got), limit, utf8.ValidString(got))
	}
	fence := ""
	for l := range strings.SplitSeq(rest, "\n") {
		trimmed := strings.TrimLeft(l, " ")
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence != "" && len(ticks) >= len(fence) && strings.Trim(trimmed, "` ") == "":
			fence = ""
			continue
		case fence != "":
			continue
		case len(ticks) >= 3 && !strings.Contains(trimmed[len(ticks):], "`"):
			fence = ticks
			continue
		}
		plain := withoutCode(t, l)
		for i := range plain {
			if plain[i] == '@' || plain[i] == '<' && !tags.MatchString(plain[i:]) {
				t.Fatalf("%q is outside code", plain[i:])
			}
		}
		if strings.Contains(plain, "evil") && !strings.Contains(plain, "<summary><code>") {
			t.Fatalf("foreign text is outside code: %q", l)
		}
		if strings.HasPrefix(l, "|") && strings.Count(l, "|") != 7 {
			t.Fatalf("a line of the table has other cells: %q", l)
		}
	}
	if fence != "" {
		t.Fatalf("a block of code has no end: %q", got)
	}
}

// withoutCode takes the spans of code out of a line.
func withoutCode(t *testing.T, l string) string {
	t.Helper()
	var out strings.Builder
	for {
		i := strings.IndexByte(l, '`')
		if i < 0 {
			return out.String() + l
		}
		out.WriteString(l[:i])
		l = l[i:]
		ticks := l[:len(l)-len(strings.TrimLeft(l, "`"))]
		l = l[len(ticks):]
		end := regexp.MustCompile("(^|[^`])" + ticks + "($|[^`])").FindStringIndex(l)
		if end == nil {
			t.Fatalf("a span of code has no end: %q", l)
		}
		l = l[end[0]:]
		l = l[strings.Index(l, ticks)+len(ticks):]
	}
}

func FuzzRender_KeepsForeignTextInCode(f *testing.F) {
	for _, s := range []string{"evil", "@evil", "<img src=evil>", "```\nevil", "`` evil `", "a|evil", "\\", "](http://evil)", "-->evil", "\u202eevil\xff", "</summary>@evil", "~~~\nevil"} {
		f.Add(s, s, 20_000, 3)
	}
	f.Fuzz(func(t *testing.T, a, b string, limit, n int) {
		limit, n = 16<<10+max(limit, 0)%70_000, max(n, 0)%40
		mask := func(s string) string { return strings.ReplaceAll(s, "dayfly", "") }
		a, b = mask(a), mask(b)
		c := pullrequest.Comment{Organization: a, Key: b, Commit: b, Held: a, Notes: []string{b, a}, Commands: true}
		for i := range n {
			p := previewed(a, api.ResourceChange{Address: b + strings.Repeat(a, i), Action: a, From: b, Forces: []string{a, b}}, api.ResourceChange{Address: a, Action: "delete"})
			p.URL, p.Plan.Changes.Outputs = a, []api.OutputChange{{Name: b, Action: a}}
			c.Previews = append(c.Previews, p, pullrequest.Preview{Run: api.Workflow{Workspace: b}, Refused: a}, inState(p, workflow.Failed, workflow.Reason(b)))
		}
		checkComment(t, c, limit)
		if state, status := pullrequest.Status(c); len(status) > pullrequest.MaxDescription || !utf8.ValidString(status) || state == "" {
			t.Errorf("got %s, %q", state, status)
		}
	})
}
