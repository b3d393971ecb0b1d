package deliverer

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/githost/github"
	"github.com/dayfly-dev/dayfly/internal/githost/gitlab"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// maxPaths is how many bytes the names of changed files may have in a report. Where they have more, the report says
// that they are not all.
const maxPaths = 512 << 10

// ask makes the call of a git host that a task asks for, with the token of the pool's side.
func (d *Deliverer) ask(ctx context.Context, in api.HostCall) api.DeliveryResult {
	host, err := d.host(ctx, in)
	if err != nil {
		return asked("", err)
	}
	name := in.URL
	if u, err := url.Parse(in.URL); err == nil {
		name = u.Host
	}
	switch {
	case in.Read != nil:
		facts, err := host.Read(ctx, githost.Read{Repository: in.Repository, Number: in.Number, CommentID: in.Read.Comment})
		out := asked(name, err)
		if err == nil {
			out.Pull = said(facts)
		}
		return out
	case in.Show != nil:
		shown, err := d.shown(ctx, host, in)
		out := asked(name, err)
		out.Comment = shown
		return out
	}
	return Outcome(Try{Err: errUnknown})
}

// shown sets the status, and then writes the comment: only the status holds back a merge.
func (d *Deliverer) shown(ctx context.Context, host githost.Host, in api.HostCall) (*api.CommentShown, error) {
	s := in.Show
	err := host.Status(ctx, githost.Status{
		Repository: in.Repository, Commit: s.Commit, State: githost.StatusState(s.State), Context: s.Context, Description: s.Description, URL: s.Link,
	})
	if err != nil || s.Body == "" {
		return nil, err
	}
	posted, err := host.Comment(ctx, githost.Comment{Repository: in.Repository, Number: in.Number, ID: s.Comment, Marker: s.Marker, Body: s.Body})
	if err != nil {
		return nil, err
	}
	return &api.CommentShown{ID: posted.ID, At: posted.Updated}, nil
}

// host is the git host of a call.
func (d *Deliverer) host(ctx context.Context, in api.HostCall) (githost.Host, error) {
	to, err := url.Parse(in.URL)
	if err != nil || to.Hostname() == "" {
		return nil, mistake("the address of the git host is not one")
	}
	if err := d.cfg.Private.Check("url", d.cfg.Setting, to); err != nil {
		return nil, mistake(err.Error())
	}
	token, err := d.cfg.Secrets.Resolve(ctx, in.TokenRef)
	if err != nil {
		return nil, unresolved("token_ref", err)
	}
	return Open(in.Kind, in.URL, d.hosts, token)
}

// Open returns the git host of a kind at an address.
func Open(kind, address string, client *http.Client, token redact.String) (githost.Host, error) {
	switch kind {
	case api.HostGitHub:
		return github.New(client, address, token)
	case api.HostGitLab:
		return gitlab.New(client, address, token)
	}
	return nil, errUnknown
}

// asked is the result of a call of a git host.
func asked(name string, err error) api.DeliveryResult {
	if err == nil {
		return api.DeliveryResult{IsDone: true, Detail: text.Middle(name+" has done it", maxDetail)}
	}
	if refused, ok := errors.AsType[*githost.Error](err); ok {
		return api.DeliveryResult{IsPermanent: refused.Permanent, RetryAfterSeconds: refused.RetryAfter.Seconds(), Detail: text.Middle(refused.Message, maxDetail)}
	}
	return Outcome(Try{Host: name, Err: err})
}

// said converts the answer of a git host for the control plane.
func said(f githost.Facts) *api.PullFacts {
	out := &api.PullFacts{
		State: string(f.State), Head: f.Head, HeadRepository: f.HeadRepository, IsFork: f.Fork, BaseRef: f.BaseRef, MergeCommit: f.MergeCommit,
		Author: person(f.Author), IsTruncated: f.FilesTruncated,
	}
	room := maxPaths
	for _, name := range f.Files {
		if room -= len(name); room < 0 {
			out.IsTruncated = true
			break
		}
		out.Files = append(out.Files, name)
	}
	if c := f.Comment; c != nil {
		out.Comment = &api.CommentFacts{ID: c.ID, Author: person(c.Author), Text: text.Head(c.Text, api.MaxCommand), Created: c.Created, Updated: c.Updated}
	}
	return out
}

func person(p githost.Person) api.Person {
	return api.Person{ID: p.ID, Login: text.Head(p.Login, 255), CanWrite: p.CanWrite}
}
