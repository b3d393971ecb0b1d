package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
)

// stackRoutes are for poller, dispatcher, relay and reaper of a pool.
func (s *server) stackRoutes() {
	const tag = "pool stacks"
	s.add(route{id: "claim-jobs", method: http.MethodPost, path: "/v1/claims", summary: "Claim jobs, waiting for the first", tag: tag, audience: stacks, errors: []int{409}}, s.claims)
	s.add(route{id: "list-claims", method: http.MethodGet, path: "/v1/claims", summary: "List the pool's active jobs", tag: tag, audience: stacks, errors: []int{409}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByProcess
			Instance string `query:"instance" maxLength:"128" doc:"Only the jobs that this instance claimed"`
			Cursor   string `query:"cursor" maxLength:"1024" doc:"Where to go on: the next of the previous page"`
		}) (*answer[api.Page[api.JobState]], error) {
			who.Process = in.process()
			return reply(s.plane.Held(ctx, who, in.Instance, in.Cursor))
		}))
	s.add(route{id: "get-job-states", method: http.MethodPost, path: "/v1/jobs/states", summary: "Say where jobs stand, waiting until one is to be cancelled or over", tag: tag, audience: stacks}, posted(s.plane.States))
	s.add(route{id: "report-queued", method: http.MethodPost, path: "/v1/jobs/{id}/queued", summary: "Report that a claimed job is in the launch queue", tag: tag, audience: stacks, errors: []int{404, 409, 410}}, reported(s.plane.Queued))
	s.add(route{id: "release-job", method: http.MethodPost, path: "/v1/jobs/{id}/release", summary: "Give a claim back", tag: tag, audience: stacks, errors: []int{404, 409, 410}}, reported(s.plane.Release))
	s.add(route{id: "report-launch", method: http.MethodPost, path: "/v1/jobs/{id}/launches", summary: "Report the outcome of a launch", tag: tag, audience: stacks, errors: []int{404, 409, 410}}, reported(s.plane.Launch))
	s.add(route{id: "report-lost", method: http.MethodPost, path: "/v1/jobs/{id}/lost", summary: "Report the proven end of a task", tag: tag, audience: stacks, errors: []int{404, 409, 410}}, reported(s.plane.Lost))
	s.add(route{id: "report-tail", method: http.MethodPost, path: "/v1/jobs/{id}/tail", summary: "Send the unsent log of an ended task, or ask for the number of the next line", tag: tag, audience: stacks, large: true, errors: []int{404, 409, 410, 416}}, sent[struct {
		ByID
		Sent
	}](s.plane.AppendTail))
}

// claims registers the call that claims jobs.
func (s *server) claims(r registration) {
	known(func(ctx context.Context, who controlplane.Principal, in *struct {
		ByProcess
		Sent
	}) (*answer[api.Claimed], error) {
		var body api.Claim
		if err := read(in.text(), &body); err != nil {
			return nil, err
		}
		who.Process = in.process()
		return reply(s.plane.Claim(ctx, who, body))
	})(taking[api.Claim](r))
}

// runnerRoutes are for the process that runs one attempt. Their 401, 409 and 410 mean that the
// caller does not hold the run.
func (s *server) runnerRoutes() {
	const tag = "runners"
	ends := []int{404, 409, 410}
	s.add(route{id: "start-run", body: reflect.TypeFor[*api.Start](), method: http.MethodPost, path: "/v1/jobs/{id}/start", summary: "Ask for the run: granted to one boot of one task", tag: tag, audience: runners, errors: ends}, ran(s.plane.Start)) // an older runner sends no body
	s.add(route{id: "get-spec", method: http.MethodGet, path: "/v1/jobs/{id}/spec", summary: "Read the spec of a started run", tag: tag, audience: runners, errors: ends},
		direct(func(ctx context.Context, in *ByRun) (*answer[api.Spec], error) {
			return reply(s.plane.Spec(ctx, jobToken(ctx), in.run()))
		}))
	s.add(route{id: "send-heartbeat", method: http.MethodPost, path: "/v1/jobs/{id}/heartbeat", summary: "Say that the runner lives; hear whether it shall stop", tag: tag, audience: runners, errors: ends}, ran(s.plane.Heartbeat))
	s.add(route{id: "send-steps", method: http.MethodPost, path: "/v1/jobs/{id}/steps", summary: "Report steps", tag: tag, audience: runners, large: true, errors: ends}, ran(s.plane.Steps))
	s.add(route{id: "send-logs", method: http.MethodPost, path: "/v1/jobs/{id}/logs", summary: "Send numbered lines of the log", tag: tag, audience: runners, large: true, errors: append([]int{416}, ends...)}, ran(s.plane.AppendLogs))
	s.add(route{id: "ask-states", method: http.MethodPost, path: "/v1/jobs/{id}/states", summary: "Ask whose states are; those that are nobody's become the workspace's before a run changes them", tag: tag, audience: runners, errors: ends}, ran(s.plane.WhoseStates))
	s.add(route{id: "announce-artifacts", method: http.MethodPost, path: "/v1/jobs/{id}/artifacts", summary: "Announce artifacts, or say that their bytes have arrived", tag: tag, audience: runners, errors: ends}, ran(s.plane.Announce))
	s.add(route{id: "get-input", method: http.MethodGet, path: "/v1/jobs/{id}/input", summary: "Name the artifact that the run is to use", tag: tag, audience: runners, errors: ends},
		direct(func(ctx context.Context, in *struct {
			ByRun
			Input string `header:"Dayfly-Input" maxLength:"4" pattern:"^[0-9]*$" doc:"Which input of the spec, counted from 0; none: the plan or the state that the run is to use" example:"0"`
		}) (*answer[api.Input], error) {
			if n, err := strconv.Atoi(in.Input); err == nil {
				return reply(s.plane.InputOf(ctx, jobToken(ctx), in.run(), n))
			}
			return reply(s.plane.Input(ctx, jobToken(ctx), in.run()))
		}))
	s.add(route{id: "send-result", method: http.MethodPost, path: "/v1/jobs/{id}/result", summary: "Hand the result over, once nothing of the run is alive", tag: tag, audience: runners, large: true, errors: ends}, ran(s.plane.Result))
}
