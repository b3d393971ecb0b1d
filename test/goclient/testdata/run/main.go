// Command run registers a workspace, runs an update of it and prints its log, all by the client that is generated beside it.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, token, source string) error {
	c, err := NewClientWithResponses(url, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	put, err := c.PutWorkspaceWithResponse(ctx, "hello", Workspace{
		Name: "hello", Engine: "command", Source: Source{Directory: &source}, Commands: &map[string]string{"update": "echo from a client that was generated"},
	})
	if err != nil {
		return err
	}
	if put.JSON201 == nil {
		return fmt.Errorf("put: %s", put.Body)
	}
	operation, key := SubmitOperation("update"), "once"
	submitted, err := c.SubmitWorkflowWithResponse(ctx, &SubmitWorkflowParams{IdempotencyKey: &key}, Submit{Workspace: "hello", Operation: &operation})
	if err != nil {
		return err
	}
	if submitted.JSON201 == nil {
		return fmt.Errorf("submit: %s", submitted.Body)
	}
	run, wait := *submitted.JSON201, int64(20)
	for fmt.Sprint(run.State) != "succeeded" {
		if state := fmt.Sprint(run.State); state == "failed" || state == "cancelled" {
			return fmt.Errorf("the run is %s", state)
		}
		got, err := c.GetWorkflowWithResponse(ctx, run.Id, &GetWorkflowParams{WaitSeconds: &wait, Revision: run.Revision})
		if err != nil {
			return err
		}
		if got.JSON200 == nil {
			return fmt.Errorf("show: %s", got.Body)
		}
		run = *got.JSON200
	}
	page, err := c.GetWorkflowLogsWithResponse(ctx, run.Id, &GetWorkflowLogsParams{})
	if err != nil {
		return err
	}
	if page.JSON200 == nil {
		return fmt.Errorf("log: %s", page.Body)
	}
	for _, line := range page.JSON200.Lines {
		if strings.Contains(line.Text, "from a client that was generated") {
			fmt.Println(run.Id, "succeeded:", line.Text)
			return nil
		}
	}
	return fmt.Errorf("the log lacks its line: %s", page.Body)
}
