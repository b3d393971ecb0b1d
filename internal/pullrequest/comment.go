package pullrequest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Comment is the content of the one comment on a pull request. It is the same for every host.
type Comment struct {
	Organization string
	Key          string // distinguishes this comment from others of the organization in the same pull request
	Commit       string // the head commit that the previews are of
	Posted       bool   // the comment exists already, so it must be brought up to date
	Held         string // why nothing is previewed until somebody releases the commit; empty where nothing is held. How to release it is added
	Commands     bool   // comments are read, so it is worth saying what to write
	Notes        []string
	Previews     []Preview
}

// Preview is one workspace in a comment.
type Preview struct {
	Run     api.Workflow  // the preview; with Refused, only its workspace
	Plan    *api.Plan     // its changes; nil where they are not known
	Apply   *api.Workflow // the run that applies the plan; nil where there is none
	URL     string        // page of the run that is meant; empty where there is no console
	Refused string        // why there is no preview; empty where there is one
}

// States of a commit's status, as GitHub has them. GitLab calls a failure failed.
const (
	StatusSuccess = "success"
	StatusFailure = "failure"
	StatusPending = "pending"
)

// The maximum bytes of a status's description, for every host, and of a comment: GitHub takes 65,535 characters,
// GitLab 1,000,000. No character has less than a byte.
const (
	MaxDescription = 140
	GitHubLimit    = 65_535
	GitLabLimit    = 1_000_000
)

// Limit is the maximum bytes of a comment at a kind of host.
func Limit(kind string) int {
	if kind == api.HostGitLab {
		return GitLabLimit
	}
	return GitHubLimit
}

// weight orders workspaces: the first ones are in a comment that is cut, too.
type weight int

const (
	bad        weight = iota // failed, or refused
	destroys                 // destroys or replaces something
	changes                  // changes something
	unfinished               // has not ended
	nothing                  // changes nothing
)

// standing is the state of a workspace in the comment.
type standing struct {
	word   string // for people, the same for all in this state
	weight weight
	status string
}

func (p Preview) standing() standing {
	ended := func(w api.Workflow, done standing, before string) standing {
		switch {
		case w.State == workflow.Succeeded:
			return done
		case w.State.Terminal():
			return standing{before + runtext.State(w), bad, StatusFailure}
		}
		return standing{cmp.Or(before, "preview ") + runtext.State(w), unfinished, StatusPending}
	}
	if p.Refused != "" {
		return standing{"not previewed", bad, StatusFailure}
	}
	s := ended(p.Run, p.planned(), "")
	if p.Apply != nil && p.Run.State == workflow.Succeeded {
		return ended(*p.Apply, standing{"applied", s.weight, StatusSuccess}, "apply ")
	}
	return s
}

// planned is the standing of a preview that succeeded.
func (p Preview) planned() standing {
	c := p.changes()
	s := standing{"planned", changes, StatusSuccess}
	if c.Destroy > 0 {
		s.weight = destroys
	}
	review := p.review()
	switch {
	case p.empty():
		return standing{runtext.Review(api.Review{Status: api.ReviewEmpty}), nothing, StatusSuccess}
	case review == nil:
		return s
	case review.Status == api.ReviewRejected:
		s.status = StatusFailure
	case review.Status == api.ReviewStale, review.Status == api.ReviewExpired:
		s.status = StatusPending
	}
	s.word = runtext.Review(*review)
	return s
}

func (p Preview) changes() api.Changes {
	switch {
	case p.Plan != nil:
		return p.Plan.Changes
	case p.Run.Result != nil && p.Run.Result.Changes != nil:
		return *p.Run.Result.Changes
	case p.Run.Changes != nil:
		return *p.Run.Changes
	}
	return api.Changes{}
}

func (p Preview) review() *api.Review {
	if p.Plan != nil && p.Plan.Review != nil {
		return p.Plan.Review
	}
	return p.Run.Review
}

// cut says whether the list of changes is not whole.
func (p Preview) cut() bool {
	return p.Plan != nil && p.Plan.Truncated || p.Plan == nil && p.Run.Result != nil && p.Run.Result.Truncated
}

// empty says whether the plan changes nothing: as the engine reports it, else by its counts.
func (p Preview) empty() bool {
	if r := p.review(); r != nil {
		return r.Status == api.ReviewEmpty
	}
	if p.Plan != nil && p.Plan.Made != nil {
		return p.Plan.Made.Empty
	}
	if p.Run.Result != nil && p.Run.Result.Plan != nil {
		return p.Run.Result.Plan.Empty
	}
	c := p.changes()
	return !c.Any() && len(c.Outputs) == 0 && !p.cut()
}

// ordered returns the previews, the most important first.
func (c Comment) ordered() []Preview {
	out := slices.Clone(c.Previews)
	slices.SortStableFunc(out, func(a, b Preview) int {
		return cmp.Or(cmp.Compare(a.standing().weight, b.standing().weight), cmp.Compare(a.Run.Workspace, b.Run.Workspace))
	})
	return out
}

// summary counts the workspaces by state: 1 failed, 2 planned.
func (c Comment) summary() string {
	if c.Held != "" && len(c.Previews) == 0 {
		return "nothing is previewed until this commit is released"
	}
	if len(c.Previews) == 0 {
		return "the change concerns no workspace"
	}
	var words []string
	count := map[string]int{}
	for _, p := range c.ordered() {
		word := p.standing().word
		if count[word]++; count[word] == 1 {
			words = append(words, word)
		}
	}
	for i, word := range words {
		words[i] = fmt.Sprintf("%d %s", count[word], word)
	}
	return text.Count(len(c.Previews), "workspace") + ": " + strings.Join(words, ", ")
}

// Silent says whether no comment is to be posted: there is none yet, nothing is known to change in any workspace, and
// nothing was asked. Whether the previews go on is said by the status.
func Silent(c Comment) bool {
	return !c.Posted && c.Held == "" && len(c.Notes) == 0 && !slices.ContainsFunc(c.Previews, func(p Preview) bool { return p.standing().weight < unfinished })
}

// Status says the same in a word and at most MaxDescription bytes, which hosts show as plain text.
func Status(c Comment) (state, description string) {
	state = StatusSuccess
	if c.Held != "" {
		state = StatusPending
	}
	for _, p := range c.Previews {
		switch s := p.standing(); {
		case s.status == StatusFailure:
			state = StatusFailure
		case s.status == StatusPending && state == StatusSuccess:
			state = StatusPending
		}
	}
	return state, text.Cut(c.summary(), MaxDescription)
}
