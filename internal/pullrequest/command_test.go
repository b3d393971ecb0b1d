package pullrequest_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const head = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"

func TestParseCommand_ReadsTheFirstLine(t *testing.T) {
	for comment, want := range map[string]pullrequest.Command{
		"dayfly preview": {Verb: "preview"},
		"\n  \r\n  dayfly   apply\tnetwork  dns \r\nthank you":   {Verb: "apply", Workspaces: []string{"network", "dns"}},
		"\u00a0dayfly\u00a0apply\u2003network\u00a0\n":           {Verb: "apply", Workspaces: []string{"network"}},
		"\u00a0\ndayfly\u202fpreview":                            {Verb: "preview"},
		"Dayfly Cancel dns dns":                                  {Verb: "cancel", Workspaces: []string{"dns"}},
		"dayfly preview " + head:                                 {Verb: "preview", Commit: head},
		"dayfly preview " + strings.ToUpper(head) + " network":   {Verb: "preview", Commit: head, Workspaces: []string{"network"}},
		"dayfly preview " + strings.Repeat("a", 64):              {Verb: "preview", Commit: strings.Repeat("a", 64)},
		"dayfly preview 123456789012":                            {Verb: "preview", Workspaces: []string{"123456789012"}},
		"dayfly apply " + head:                                   {Verb: "apply", Workspaces: []string{head}},
		"dayfly apply\n> dayfly cancel\n```\ndayfly cancel\n```": {Verb: "apply"},
	} {
		got, ok := pullrequest.ParseCommand(comment)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%q: %v (-want +got):\n%s", comment, ok, diff)
		}
	}
}

func TestParseCommand_SaysWhatIsWrong(t *testing.T) {
	for comment, want := range map[string]string{
		"dayfly":                                   "nothing else",
		"dayfly destroy":                           `does not know "destroy" here: write dayfly preview`,
		"dayfly apply a/b":                         `"a/b" is not the name of a workspace`,
		"dayfly apply, please":                     `does not know "apply,"`,
		"dayfly preview dns " + "@me":              `"@me" is not`,
		"dayfly apply " + strings.Repeat("x ", 51): "51 workspaces",
	} {
		got, ok := pullrequest.ParseCommand(comment)
		if !ok || !strings.Contains(got.Mistake, want) || got.Verb != "" {
			t.Errorf("%q: got %+v, %v, want %q", comment, got, ok, want)
		}
	}
}

func TestParseCommand_LeavesOtherCommentsAlone(t *testing.T) {
	for _, comment := range []string{
		"", "\n\n", "looks good", "@dayfly apply", "/dayfly apply", "> dayfly apply", ">dayfly apply\n\ndayfly apply", "```\ndayfly apply\n```", "    dayfly apply",
		"\tdayfly apply", " \tdayfly apply", "`dayfly apply`", "please dayfly apply", "dayflyapply", "dayfly-apply", "* dayfly apply", "\u200bdayfly apply",
		"<!-- dayfly:default/x -->\ndayfly apply", "LGTM\ndayfly apply",
	} {
		if got, ok := pullrequest.ParseCommand(comment); ok {
			t.Errorf("%q was taken for %+v", comment, got)
		}
	}
}

func FuzzParseCommand_SaysNothingThatTheCommentDoesNot(f *testing.F) {
	for _, s := range []string{"dayfly apply a b", "dayfly preview " + head, "> dayfly", "dayfly \xff", "dayfly apply\x00", "\n dayfly cancel a\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, comment string) {
		c, ok := pullrequest.ParseCommand(comment)
		if !ok {
			if !cmp.Equal(c, pullrequest.Command{}) {
				t.Errorf("%q is not a command, and it is %+v", comment, c)
			}
			return
		}
		if c.Mistake != "" {
			if c.Verb != "" || len(c.Mistake) > 500 || !utf8.ValidString(c.Mistake) || strings.ContainsAny(c.Mistake, "\r\n") {
				t.Errorf("%q: got %+v", comment, c)
			}
			return
		}
		first, _, _ := strings.Cut(strings.TrimLeft(comment, " \t\r\n"), "\n")
		words := strings.Fields(strings.ToLower(first))
		if words[0] != "dayfly" || words[1] != c.Verb || c.Commit != "" && words[2] != c.Commit {
			t.Errorf("%q: got %+v", comment, c)
		}
		for _, w := range c.Workspaces {
			if workflow.CheckWorkspaceName(w) != nil || !slices.Contains(words, strings.ToLower(w)) {
				t.Errorf("%q names %q", comment, w)
			}
		}
	})
}
