package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// PutSetting creates or changes a setting, and says which.
func (c *Client) PutSetting(ctx context.Context, in api.Setting) (out api.Setting, outcome api.Outcome, err error) {
	k := kind.For(in)
	name, _ := in.Key()
	header := http.Header{}
	req := call{op: "apply " + k.Noun() + " " + name, method: http.MethodPut, path: []string{"v1", k.Path(), name}, in: in, header: header}
	raw, err := ask[json.RawMessage](ctx, c, brief, req)
	if err == nil {
		out, err = settingOf(k, raw)
	}
	return out, api.Outcome(header.Get(api.OutcomeHeader)), err
}

// Settings lists the settings of a kind.
func (c *Client) Settings(ctx context.Context, k kind.Kind, cursor string, limit int) (api.Page[api.Setting], error) {
	page, err := get[api.Page[json.RawMessage]](ctx, c, "list "+k.Plural, listing(cursor, limit), "v1", k.Path())
	out := api.Page[api.Setting]{Items: []api.Setting{}, Next: page.Next}
	for _, raw := range page.Items {
		one, wrong := settingOf(k, raw)
		if wrong != nil {
			return out, wrong
		}
		out.Items = append(out.Items, one)
	}
	return out, err
}

// Setting shows a setting of a kind.
func (c *Client) Setting(ctx context.Context, k kind.Kind, name string) (api.Setting, error) {
	raw, err := get[json.RawMessage](ctx, c, "show "+k.Noun()+" "+name, nil, "v1", k.Path(), name)
	if err != nil {
		return nil, err
	}
	return settingOf(k, raw)
}

// DeleteSetting deletes a setting of a kind.
func (c *Client) DeleteSetting(ctx context.Context, k kind.Kind, name string) error {
	return c.remove(ctx, call{op: "delete " + k.Noun() + " " + name, path: []string{"v1", k.Path(), name}})
}

// settingOf decodes a setting of a kind.
func settingOf(k kind.Kind, raw []byte) (api.Setting, error) {
	out := reflect.New(k.Type)
	if err := json.Unmarshal(raw, out.Interface()); err != nil {
		return nil, fmt.Errorf("read %s: %w", k.Noun(), err)
	}
	return out.Elem().Interface().(api.Setting), nil // as the table says
}

// RotateWebhookSecret makes the secret of a git host's webhook anew and returns it. The one before stops at once.
func (c *Client) RotateWebhookSecret(ctx context.Context, name string) (api.WebhookSecret, error) {
	return ask[api.WebhookSecret](ctx, c, once, call{op: "rotate the secret of git host " + name, method: http.MethodPost, path: []string{"v1", "git-hosts", name, "secret"}})
}

// ScheduledRuns lists the workspaces of a schedule, each with its last and next run.
func (c *Client) ScheduledRuns(ctx context.Context, name, cursor string, limit int) (api.Page[api.ScheduledRun], error) {
	return get[api.Page[api.ScheduledRun]](ctx, c, "list runs of schedule "+name, listing(cursor, limit), "v1", "schedules", name, "runs")
}

// WorkspaceSchedules lists the schedules of a workspace.
func (c *Client) WorkspaceSchedules(ctx context.Context, name string) (api.Page[api.ScheduledRun], error) {
	return get[api.Page[api.ScheduledRun]](ctx, c, "list schedules of workspace "+name, nil, "v1", "workspaces", name, "schedules")
}
