package pulls

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// reading holds the facts about a pull request that was read at its host.
type reading struct {
	pull   record.Pull
	facts  api.PullFacts
	said   *record.Said // the command that it was read for
	member *api.Member  // the author of its comment, by the host's present answer
}

// verdict is the decision about a reading. Its pull is the new record, without the runs that are still to be
// submitted.
type verdict struct {
	pull    record.Pull
	cancel  []record.PullPreview // previews that are of no use any more
	preview bool                 // previews of the head are wanted
	anew    string               // sets them apart from those before; empty: only the missing ones
	apply   []record.PullPreview // the previews whose plans a member wants applied
	merged  bool                 // runs of the merge are wanted
	only    []string             // of these workspaces alone; empty means all
}

// judge decides about a reading. It is a pure function. A pull request is a stranger's code until somebody says
// otherwise: of a fork, or of an author who may not write to the repository, nothing runs before a member has
// released that very commit.
func judge(r reading) verdict {
	v := verdict{pull: r.pull}
	v.pull.State = r.facts.State
	if r.pull.Head != r.facts.Head {
		v.pull.Head, v.pull.Note = r.facts.Head, ""
		for _, p := range r.pull.Previews {
			if p.Run != "" {
				v.cancel = append(v.cancel, p)
			}
		}
		v.pull.Previews, v.pull.More = nil, 0
	}
	if r.said != nil && r.facts.State != api.PullOpen {
		v.pull.Note = "The command was not carried out: the pull request is " + r.facts.State + "."
	}
	switch r.facts.State {
	case api.PullMerged:
		v.cancel, v.merged, v.pull.Waits = nil, r.pull.State != api.PullMerged, ""
	case api.PullClosed:
		v.cancel, v.pull.Waits = append(v.cancel, v.pull.Previews...), ""
	default:
		if r.pull.State == api.PullClosed && len(v.pull.Previews) > 0 {
			v.pull.Note = "It was closed meanwhile, and its previews were cancelled: comment dayfly preview for new ones."
		}
		if r.said != nil {
			v.pull.Note = v.obey(r)
		}
		v.pull.Waits = waits(v.pull, r.facts)
		v.preview = v.preview || v.pull.Waits == ""
		if v.pull.Waits != "" {
			v.preview, v.only, v.anew = false, nil, ""
		}
	}
	return v
}

// waits says why nothing of a pull request runs yet; empty if it may.
func waits(p record.Pull, f api.PullFacts) string {
	why := held(f)
	if why == "" || p.Released == f.Head {
		return ""
	}
	return "nothing of this pull request runs yet, because " + why
}

// held says why a commit of a pull request runs only for the member who has released it; empty if it does without.
func held(f api.PullFacts) string {
	switch {
	case f.IsFork:
		return "it comes from a fork"
	case !f.Author.CanWrite:
		return "its author may not write to the repository"
	}
	return ""
}

// obey carries out the command of a comment, and returns the answer. Only the text that the host has now counts.
func (v *verdict) obey(r reading) string {
	now := r.facts.Comment
	command, _ := pullrequest.ParseCommand(r.said.Text)
	switch {
	case now == nil:
		return "The command was not carried out: its comment is gone."
	case now.Author.ID != r.said.Author || text.Head(now.Text, api.MaxCommand) != text.Head(r.said.Text, api.MaxCommand):
		return "The command was not carried out: its comment is not the one that was announced. Write a new one."
	case now.Updated.After(now.Created.Add(time.Second)): // others than its author can edit a comment
		return "The command was not carried out: its comment was edited. Write a new one."
	case command.Mistake != "":
		return "The command was not carried out: " + command.Mistake + "."
	case r.member == nil:
		return fmt.Sprintf("The command was not carried out: user %d of the git host is not a member here. An admin adds members to the git host's settings.", now.Author.ID)
	}
	v.only = command.Workspaces
	switch command.Verb {
	case pullrequest.VerbPreview:
		if command.Commit != "" && command.Commit != r.facts.Head {
			v.only = nil
			return fmt.Sprintf("Commit %s was not released: the newest commit is %s by now. Read that one.", command.Commit, r.facts.Head)
		}
		if command.Commit != "" {
			v.pull.Released, v.pull.ReleasedBy = r.facts.Head, r.member.ID
		}
		v.preview, v.anew = true, fmt.Sprint(r.said.Comment)
		return ""
	case pullrequest.VerbCancel:
		for _, p := range v.pull.Previews {
			if p.Run != "" && v.concerns(p) {
				v.cancel = append(v.cancel, p)
			}
		}
		v.only = nil
		return "Cancelled by " + r.member.Principal + "."
	default:
		return v.wantApplied(r)
	}
}

func (v *verdict) concerns(p record.PullPreview) bool {
	return len(v.only) == 0 || slices.Contains(v.only, p.Workspace)
}

// wantApplied finds the plans that the command apply means: those of the newest commit that Dayfly's comment showed
// before.
func (v *verdict) wantApplied(r reading) string {
	defer func() { v.only = nil }()
	if r.pull.Head != r.facts.Head {
		return fmt.Sprintf("Nothing was applied: commit %s was pushed after the previews that you have seen. Look at its previews and comment again.", r.facts.Head)
	}
	var unseen []string
	for _, p := range v.pull.Previews {
		switch {
		case p.Run == "" || !v.concerns(p):
		case p.Shown.IsZero() || !p.Shown.Before(r.facts.Comment.Created):
			unseen = append(unseen, p.Workspace)
		default:
			v.apply = append(v.apply, p)
		}
	}
	switch {
	case len(unseen) > 0:
		v.apply = nil
		return fmt.Sprintf("Nothing was applied: the plans of %s were not shown here before your comment. Look at them and comment again.", strings.Join(unseen, ", "))
	case len(v.apply) == 0:
		return "Nothing was applied: no preview can be applied."
	}
	return ""
}
