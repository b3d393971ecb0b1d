package browser_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// playedPool is the pool whose agent and runners a story plays, over the API.
const playedPool = "played"

// actor is a run that the story plays.
type actor struct {
	s    *server
	job  api.Job
	run  *client.Runner
	next int64 // line of the log
	step int
}

// plays makes a workspace of terraform that the played pool runs.
func (s *server) plays(name string, change ...func(*api.Workspace)) {
	s.t.Helper()
	if s.played == nil {
		pool, err := s.people.CreatePool(s.t.Context(), api.PoolSettings{
			Name: new(playedPool), Description: new("Runners of the build account"), Concurrency: new(8),
		})
		s.must(err)
		s.played = s.as(pool.Token)
	}
	ws := api.Workspace{
		Name: name, RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: "/srv/infra/" + name}}, Pool: playedPool,
	}
	for _, c := range change {
		c(&ws)
	}
	_, _, err := s.people.PutWorkspace(s.t.Context(), ws)
	s.must(err)
}

// guarded lets a workspace's plans be approved.
func guarded(ws *api.Workspace) { ws.Approval = &api.Approval{Required: true} }

// claim claims the one run of the played pool that waits.
func (s *server) claim() api.Job {
	s.t.Helper()
	got, err := s.played.Claim(s.t.Context(), api.Claim{Instance: "build-01", Version: "1.0.0", Max: 1})
	s.must(err)
	if len(got.Jobs) != 1 {
		s.t.Fatalf("%d runs were claimed, want 1: %s", len(got.Jobs), got.Note)
	}
	return got.Jobs[0]
}

// act claims, launches and starts the one run of the played pool that waits.
func (s *server) act() *actor {
	s.t.Helper()
	return s.begin(s.claim())
}

// begin launches and starts a claimed run.
func (s *server) begin(job api.Job) *actor {
	s.t.Helper()
	task := fmt.Sprintf("task-%s-%d", job.ID, job.Attempt)
	s.must(s.played.Launch(s.t.Context(), job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task}))
	r, err := client.NewRunner(client.RunnerConfig{
		URL: "http://" + s.addr, Credential: redact.New(job.Token),
		Run: api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat("a", 32)},
	})
	s.must(err)
	_, err = r.Start(s.t.Context())
	s.must(err)
	return &actor{s: s, job: job, run: r}
}

// logs adds lines to the log.
func (a *actor) logs(step string, lines ...string) {
	a.s.t.Helper()
	for len(lines) > 0 {
		n := min(len(lines), 5000)
		in := api.Logs{First: a.next}
		for _, l := range lines[:n] {
			in.Lines = append(in.Lines, api.LogLine{At: time.Now().UTC(), Step: step, Text: l})
		}
		taken, err := a.run.Logs(a.s.t.Context(), in)
		a.s.must(err)
		a.next, lines = taken.Next, lines[n:]
	}
}

// did reports a step with its lines: one that still runs, or one that ended after some seconds of the server's pace.
func (a *actor) did(name string, seconds float64, status workflow.StepStatus, text string, lines ...string) {
	a.s.t.Helper()
	began := time.Now()
	a.logs(name, lines...)
	a.step++
	step := api.Step{Seq: a.step, Name: name, Status: status, StartedAt: began.UTC(), Text: text, LogEnd: a.next}
	if status != workflow.StepRunning {
		a.s.passes(seconds)
		step.Seconds = time.Since(began).Seconds()
	}
	_, err := a.run.Steps(a.s.t.Context(), api.Steps{Steps: []api.Step{step}})
	a.s.must(err)
}

// passes lets time pass at the server's pace, so that pictures have something to show.
func (s *server) passes(seconds float64) {
	<-time.After(time.Duration(seconds * s.pace * float64(time.Second)))
}

// ends reports the result.
func (a *actor) ends(in api.Result) {
	a.s.t.Helper()
	in.LogEnd = a.next
	_, err := a.run.Result(a.s.t.Context(), in)
	a.s.must(err)
}

// leaves places an artifact whose bytes are the text.
func (a *actor) leaves(name, kind, text string) (sum string) {
	a.s.t.Helper()
	b := sha256.Sum256([]byte(text))
	sum = hex.EncodeToString(b[:])
	ctx := a.s.t.Context()
	_, err := a.run.Artifacts(ctx, api.NewArtifacts{
		Artifacts: []api.NewArtifact{{Name: name, Kind: kind, Size: int64(len(text)), SHA256: sum}},
		Place:     &api.Place{Kind: api.PlaceDirectory},
	})
	a.s.must(err)
	_, err = a.run.Artifacts(ctx, api.NewArtifacts{Placed: []string{name}, Place: &api.Place{Kind: api.PlaceDirectory}})
	a.s.must(err)
	return sum
}

// plans ends a preview whose plan is to be approved.
func (a *actor) plans(changes api.Changes) {
	a.s.t.Helper()
	bundle := "plan of " + a.job.ID
	sum := a.leaves("plan/bundle.tar", api.ArtifactPlan, bundle)
	a.ends(api.Result{Outcome: workflow.Succeeded, Changes: &changes, Plan: &api.PlanMade{
		Artifact: "plan/bundle.tar", Size: int64(len(bundle)), SHA256: sum, Summary: strings.Repeat("5", 64),
	}})
}
