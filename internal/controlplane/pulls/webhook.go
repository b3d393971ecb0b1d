package pulls

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/githost/webhook"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Webhook takes an event of a git host. Anyone with the secret of the webhook can send one, so an event is only a
// reason to look: the pull request is read at the host before anything is done. A body that was taken before does
// nothing.
func (p *Calls) Webhook(ctx context.Context, org, name string, header http.Header, body []byte) (out api.WebhookTaken, err error) {
	unknown := workflow.Refuse(workflow.ErrUnauthenticated, "", "there is no such webhook, or the event is not signed with its secret")
	if identity.CheckName(org) != nil || identity.CheckName(name) != nil {
		return out, unknown
	}
	key, err := p.webhookKey(ctx)
	if err != nil {
		return out, err
	}
	c := p.ledger.View()
	host, ok, err := ledger.Load[record.Settings[api.GitHost]](ctx, c, record.SettingsKey(org, kind.GitHost, name))
	if err != nil {
		return out, err
	}
	if !ok || host.V.IsDisabled || webhook.Verify(host.V.Kind, webhookSecret(key, org, host), header, body, p.ledger.Now()) != nil {
		return out, unknown
	}
	event, err := webhook.Parse(host.V.Kind, header, body)
	if err != nil {
		return out, err
	}
	about, why := heeds(event)
	if about == nil {
		return api.WebhookTaken{Reason: why}, nil
	}
	about.HostID = host.ID
	digest := sha256.Sum256(body)
	hook := record.HookKey(org, host.ID, hex.EncodeToString(digest[:]))
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		out = api.WebhookTaken{IsTaken: true, Reason: why}
		k := record.PullKey(org, host.ID, about.Repository, about.Number)
		if err := c.Load(ctx, hook, k); err != nil {
			return err
		}
		if c.Version(hook) != 0 {
			out = api.WebhookTaken{Reason: "the same event was taken before"}
			return nil
		}
		pull, ok, err := ledger.Get[record.Pull](c.Read, k)
		if err != nil {
			return err
		}
		if !ok {
			pull = record.Pull{HostID: host.ID, Repository: about.Repository, Number: about.Number}
		}
		c.PutUntil(hook, record.Name{}, c.Now.Add(record.HookKept))
		c.PutUntil(k, pull, c.Now.Add(record.PullKept))
		_, err = pullDelivery(ctx, c, org, host, api.DeliverRead, *about)
		return err
	})
	return out, err
}

// heeds returns the pull request to read because of an event, or says why none is read. It is a pure function.
func heeds(e webhook.Event) (about *record.PullDelivery, why string) {
	about = &record.PullDelivery{Repository: e.Repository, Number: e.Number}
	switch e.Kind {
	case webhook.Opened, webhook.Updated, webhook.Closed:
		return about, "the pull request is read at its host"
	case webhook.Commented:
		if _, ok := pullrequest.ParseCommand(e.Text); !ok {
			return nil, "the comment is not a command"
		}
		about.Said = &record.Said{Comment: e.CommentID, Author: e.AuthorID, Text: e.Text}
		return about, "the comment is read back at its host"
	case webhook.Pushed, webhook.Ignored:
	}
	return nil, cmp.Or(e.Why, "nothing follows from this event")
}
