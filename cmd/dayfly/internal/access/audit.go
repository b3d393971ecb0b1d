package access

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/strict"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// AuditCommands are the commands of dayfly audit.
type AuditCommands struct {
	List   auditList   `cmd:"" default:"withargs" help:"List changes and refusals, the newest first; audit alone does the same."`
	Export auditExport `cmd:"" help:"Write all sealed entries, the oldest first, as JSON, one to a line."`
	Verify auditVerify `cmd:"" help:"Check the entries against their seals; exit code 1 if one was changed, deleted or added."`
}

// auditFilter are the flags that narrow the trail.
type auditFilter struct {
	Actor   string `help:"Only requests of this principal: its name or its id."`
	Action  string `help:"Only this action; with * at its end all actions that begin so, such as 'token.*'."`
	Target  string `help:"Only requests about this name or id."`
	Outcome string `help:"Only requests with this outcome: done or refused."`
	Since   string `placeholder:"TIME" help:"Only from this time on: 2026-11-01T00:00:00Z, or how long ago, such as 24h or 7d."`
	Until   string `placeholder:"TIME" help:"Only from before this time."`
}

func (f auditFilter) filter() (api.AuditFilter, error) {
	now := time.Now()
	since, err := cli.ParseTime("--since", f.Since, now)
	until, err2 := cli.ParseTime("--until", f.Until, now)
	return api.AuditFilter{Actor: f.Actor, Action: f.Action, Target: f.Target, Outcome: f.Outcome, Since: since, Until: until}, cmp.Or(err, err2)
}

type auditList struct {
	auditFilter
	Limit  int  `short:"n" default:"50" help:"How many at most."`
	Follow bool `short:"f" help:"Print the entries since --since (default 5m), the oldest first, and go on with new ones until interrupted."`
}

// Run prints the list.
func (c *auditList) Run(a *cli.App, cl *client.Client) error {
	if err := cli.CheckLimit(c.Limit); err != nil {
		return err
	}
	f, err := c.filter()
	if err != nil {
		return err
	}
	if c.Follow {
		return c.follow(a, cl, f)
	}
	page := func(ctx context.Context, cursor string, limit int) (api.Page[api.AuditEvent], error) {
		f.Cursor, f.Limit = cursor, limit
		return cl.Audit(ctx, f)
	}
	more, err := cli.ListUpTo(a, c.Limit, page, "no entries", []string{"AT", "ACTOR", "ACTION", "TARGET", "OUTCOME", "DETAIL"}, func(e api.AuditEvent) []string {
		return []string{term.Time(e.At), cli.Dash(e.Actor), cli.Dash(e.Action), cli.Dash(e.Target), cli.Dash(e.Outcome), cli.Dash(e.Detail)}
	})
	if more && err == nil {
		a.SayMore(c.Limit, ", and dayfly audit export all")
	}
	return err
}

const (
	followEvery = time.Second
	// followAgain is how far back each request goes again. Entries are written by several processes, each by its own
	// clock and up to two minutes after its time: an entry may come after later ones that were shown.
	followAgain = 5 * time.Minute
)

// follow prints entries as they come, each once.
func (c *auditList) follow(a *cli.App, cl *client.Client, f api.AuditFilter) error {
	if !f.Until.IsZero() {
		return cli.Usage(errors.New("--until: cannot be used with --follow, which ends when it is interrupted"))
	}
	f.Order = api.OldestFirst
	if f.Since.IsZero() {
		f.Since = time.Now().Add(-followAgain)
	}

	shown, down := map[string]bool{}, false
	var newest time.Time
	for {
		for e, err := range cl.Entries(a.Ctx, f) {
			switch {
			case a.Ctx.Err() != nil:
				return nil
			case errors.Is(err, client.ErrUnreachable):
				if !down {
					a.Say("%s; trying again", cli.Sentence(err))
				}
				down = true
				continue
			case err != nil:
				return err
			}
			down = false
			if shown[e.ID] {
				continue
			}
			shown[e.ID] = true
			if at := api.AuditTime(e.ID); at.After(newest) {
				newest = at
			}
			if err := entry(a, e); err != nil {
				return err
			}
		}

		if from := newest.Add(-followAgain); from.After(f.Since) {
			f.Since = from
		}
		for id := range shown {
			if api.AuditTime(id).Before(f.Since) {
				delete(shown, id)
			}
		}
		if wait.For(a.Ctx, followEvery) != nil {
			return nil //nolint:nilerr // this is how it ends
		}
	}
}

// entry prints one entry on a line.
func entry(a *cli.App, e api.AuditEvent) error {
	if a.JSON() {
		return cli.WriteLine(a.Stdout, e)
	}
	return a.Print("%s  %s  %s %s  %s  %s", term.Time(e.At), cli.Dash(e.Actor), cli.Dash(e.Action), cli.Dash(e.Target), cli.Dash(e.Outcome), term.Clean(e.Detail))
}

type auditExport struct {
	auditFilter
	File  string `type:"path" placeholder:"FILE" help:"Append to this file; default standard output."`
	After string `placeholder:"ID" help:"Go on after the entry with this id, which the previous export printed."`
}

// Run writes the sealed entries: they do not change any more, and no entry is inserted between two of them.
func (c *auditExport) Run(a *cli.App, cl *client.Client) (err error) {
	f, err := c.filter()
	if err != nil {
		return err
	}
	state, err := cl.SealPage(a.Ctx, "", 1)
	if err != nil {
		return err
	}
	out := a.Stdout
	if c.File != "" {
		file, err := os.OpenFile(c.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("open the file of the export: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}

	buffered := bufio.NewWriter(out)
	f.Order, f.After = api.OldestFirst, c.After
	n, last := 0, c.After
	defer func() {
		if err = errors.Join(err, buffered.Flush()); err == nil || n > 0 {
			if last == "" {
				a.Say("%s: an entry is exported when it is sealed, some minutes after it was written", api.EntryCount(n))
				return
			}
			a.Say("%s; go on with --after %s", api.EntryCount(n), last)
		}
	}()
	for e, err := range cl.Entries(a.Ctx, f) {
		if err != nil {
			return err
		}
		if e.ID > state.To {
			break
		}
		if err := cli.WriteLine(buffered, e); err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
		n, last = n+1, e.ID
	}
	return nil
}

type auditVerify struct {
	Anchors []string `type:"path" placeholder:"FILE" help:"Compare with the trail as it was forwarded, in this file; may be given several times."`
}

// Run checks the trail. It computes every digest from the entries.
func (c *auditVerify) Run(a *cli.App, cl *client.Client) error {
	who, err := cl.Whoami(a.Ctx)
	if err != nil {
		return err
	}
	anchors, err := readAnchors(who.Organization, c.Anchors)
	if err != nil {
		return cli.Usage(err)
	}
	state, err := cl.SealPage(a.Ctx, "", 1)
	if err != nil {
		return err
	}

	var r api.AuditReport
	for {
		all := api.AuditFilter{Order: api.OldestFirst}
		if r, err = api.VerifyAudit(who.Organization, state, cl.Seals(a.Ctx), cl.Entries(a.Ctx, all), anchors); err != nil {
			return err
		}
		now, err := cl.SealPage(a.Ctx, "", 1)
		if err != nil {
			return err
		}
		if r.Broken == "" || now.First == state.First {
			state = now
			break
		}
		state = now // some of it was deleted meanwhile, because it is past its retention: check again
	}

	if a.JSON() {
		err = a.Encode(r)
	} else {
		err = auditReport(a, r, state, len(anchors))
	}
	if err == nil && r.Broken != "" {
		err = &cli.ExitError{Code: cli.ExitFailed}
	}
	return err
}

func auditReport(a *cli.App, r api.AuditReport, state api.SealPage, anchors int) error {
	var b strings.Builder
	switch {
	case r.Broken != "":
		fmt.Fprintf(&b, "the audit trail is BROKEN: %s\n", term.Clean(r.Broken))
		if r.Last >= r.First {
			fmt.Fprintf(&b, "before that, seals %d to %d hold\n", r.First, r.Last)
		}
	case r.Last < r.First && state.Last > 0:
		fmt.Fprintf(&b, "there is no seal to check: all %d are past the retention, and deleted\n", state.Last)
	case r.Last < r.First:
		b.WriteString("nothing is sealed yet: an entry is sealed when it is five minutes old\n")
	default:
		fmt.Fprintf(&b, "the audit trail holds: seals %d to %d, %s\n", r.First, r.Last, api.EntryCount(r.Entries))
	}
	if r.First > 1 && r.First <= r.Last {
		fmt.Fprintf(&b, "it begins with seal %d: earlier ones are past the retention, and deleted\n", r.First)
	}
	if r.Unsealed > 0 {
		fmt.Fprintf(&b, "not sealed yet: %s, since %s\n", api.EntryCount(r.Unsealed), term.Time(*r.Since))
	}
	if anchors > 0 {
		fmt.Fprintf(&b, "as they were forwarded: %s\n", text.Count(r.Anchored, "seal"))
	}
	if f := state.Forwarded; f != nil {
		fmt.Fprintf(&b, "forwarded up to seal %d of %d\n", f.Seal, state.Last)
		if f.Failed != "" {
			fmt.Fprintf(&b, "forwarding fails since %s: %s\n", term.Time(*f.Since), term.Clean(f.Failed))
		}
	}
	return a.Print("%s", strings.TrimSuffix(b.String(), "\n"))
}

// readAnchors reads the seals of an organization from files to which its trail was forwarded. A last line without an
// end is one that is just being written.
func readAnchors(organization string, files []string) (map[int64]api.AuditAnchor, error) {
	anchors := map[int64]api.AuditAnchor{}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--anchors: %w", err)
		}
		var entries []api.AuditEvent
		lines := bufio.NewReader(file)
		for n := 1; ; n++ {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var l api.AuditLine
			if err := strict.Unmarshal(bytes.TrimSpace(line), &l); err != nil || l.Entry == nil && l.Seal == nil {
				_ = file.Close()
				return nil, fmt.Errorf("--anchors: line %d of %s is not one of a forwarded audit trail", n, name)
			}
			switch {
			case l.Organization != organization:
			case l.Entry != nil:
				entries = append(entries, *l.Entry)
			default:
				if known, ok := anchors[l.Seal.Number]; ok && known.Seal.Digest != l.Seal.Digest {
					_ = file.Close()
					return nil, fmt.Errorf("--anchors: there are two different seals %d, one in line %d of %s", l.Seal.Number, n, name)
				}
				anchors[l.Seal.Number], entries = api.AuditAnchor{Seal: *l.Seal, Entries: entries}, nil
			}
		}
		_ = file.Close()
	}
	return anchors, nil
}
