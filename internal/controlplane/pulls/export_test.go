package pulls

import (
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// Verdict is the decision about a reading, for tests.
type Verdict struct {
	Waits, Note, Released string
	Cancel, Apply, Stays  []string
	Preview, Anew, Merged bool
	Only                  []string
}

// Judge lets tests make readings.
func Judge(pull record.Pull, facts api.PullFacts, said *record.Said, m *api.Member) Verdict {
	v := judge(reading{pull: pull, facts: facts, said: said, member: m})
	return Verdict{
		Waits: v.pull.Waits, Note: v.pull.Note, Released: v.pull.Released, Cancel: runsOf(v.cancel), Apply: runsOf(v.apply),
		Stays: runsOf(v.pull.Previews), Preview: v.preview, Anew: v.anew != "", Merged: v.merged, Only: v.only,
	}
}

func runsOf(list []record.PullPreview) (out []string) {
	for _, p := range list {
		out = append(out, p.Run)
	}
	return out
}
