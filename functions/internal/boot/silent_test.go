package boot_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	references "github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// idle is a launcher without tasks.
type idle struct{}

func (idle) Launch(context.Context, launcher.Request) (launcher.Task, error) {
	return launcher.Task{}, launcher.Never("no")
}
func (idle) List(context.Context) ([]launcher.Task, error)                { return nil, nil }
func (idle) Describe(context.Context, ...string) ([]launcher.Task, error) { return nil, nil }
func (idle) Stop(context.Context, string, string) error                   { return nil }

// The time of a function is paid for: a control plane that takes a connection and never answers holds it for 10 s.
func TestControlPlane_ASilentOneHoldsNoFunction(t *testing.T) {
	stages := map[string]func(t *testing.T, ctx context.Context, c *client.Client) error{
		"poller": func(t *testing.T, ctx context.Context, c *client.Client) error {
			jobs, err := memory.New(memory.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p, err := poller.New(c, jobs, boot.NewKeys(nil), poller.Config{Instance: "stack", Wait: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Window(ctx, 0)
			return err
		},
		"reaper's sweep": func(_ *testing.T, ctx context.Context, c *client.Client) error {
			_, err := reaper.New(c, idle{}, reaper.Config{Instance: "stack"}).Sweep(ctx)
			return err
		},
		"end of a task": func(_ *testing.T, ctx context.Context, c *client.Client) error {
			return reaper.New(c, idle{}, reaper.Config{Instance: "stack"}).Ended(ctx, launcher.Task{Ref: "t", Workflow: "wf_1", Attempt: 1, Phase: launcher.Stopped})
		},
		"deliverer": func(t *testing.T, ctx context.Context, c *client.Client) error {
			d, err := deliverer.New(c, deliverer.Config{Instance: "stack", Secrets: references.Mux{}, Setting: "s"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Pass(ctx)
			return err
		},
		"dispatcher": func(t *testing.T, ctx context.Context, c *client.Client) error {
			d, err := dispatcher.New(nil, idle{}, c, dispatcher.Config{Relay: func(string) string { return "r" }})
			if err != nil {
				t.Fatal(err)
			}
			m := api.LaunchMessage{
				Needs: task.Needs{
					Attempt: 1, Organization: "default", Workspace: "net", Pool: "main", Size: "medium",
					StateKind: api.StateDirectory, StateKey: "ws_net", MaxRuntimeSeconds: 60,
				},
				Ticket: "sealed", Job: "wf_1", Type: workflow.Deployment, Operation: workflow.Update, SentAtMS: time.Now().UnixMilli(), LaunchSeconds: 3600,
			}
			body, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if out := d.Batch(ctx, []queue.Message{{ID: "1", Body: body}}); out[0].Delete {
				t.Errorf("%+v: want it back", out[0])
			}
			return workflow.ErrBusy
		},
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := boot.ClientConfig("https://cp.example.com")
				requests := 0
				cfg.HTTPClient = &http.Client{Transport: client.InMemory(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					requests++
					<-r.Context().Done()
				}))}
				c, err := client.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the function
				defer cancel()
				begun := time.Now()
				err = stage(t, ctx, c)
				if took := time.Since(begun); err == nil || took != 10*time.Second || requests == 0 {
					t.Errorf("it took %s and made %d requests: %v", took, requests, err)
				}
			})
		})
	}
}
