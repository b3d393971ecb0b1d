package identity

import (
	"context"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// DataDirectory is the actor in the audit trail for the owner of the data directory of dayfly up.
const DataDirectory = "data-directory"

// maxPrincipalName is the longest name of a principal, in bytes.
const maxPrincipalName = 64

// checkPrincipalName refuses an invalid name of a principal. No name has a slash: KIND/NAME names a principal that is
// not made here.
func checkPrincipalName(name string) error {
	const others = "._@+-"
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(others, r)
	}
	switch {
	case name == "" || len(name) > maxPrincipalName || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }):
		return workflow.Invalid("name", "a name has 1 to %d letters, digits and characters of %s, not %q", maxPrincipalName, others, text.Cut(name, 80))
	case slices.Contains([]string{rules.ByRule, DataDirectory}, name):
		return workflow.Invalid("name", "%s is a name of the control plane itself: choose another name", name)
	}
	return workflow.CheckNoID(name)
}

// CreatePrincipal makes a principal without a token, such as one that a git host's members name.
func (p *Calls) CreatePrincipal(ctx context.Context, who Principal, in api.NewPrincipal) (out api.Principal, err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "principal.create", in.Name); err != nil {
		return out, err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		made, err := newPrincipal(ctx, c, who, in.Name)
		out = viewPrincipal(made, 1)
		return err
	})
	return out, err
}

// Principals lists the principals that were made here: those of issuers are not recorded.
func (p *Calls) Principals(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[api.Principal], err error) {
	if err := Allow(ctx, p.ledger, who, api.RoleAdmin, "principal.list", ""); err != nil {
		return out, err
	}
	scan := record.Under(record.OrganizationPart(who.Organization), record.PrincipalsPrefix, ledger.PageSize(limit, 200))
	return ledger.ListOf(ctx, p.ledger, scan, cursor, viewPrincipal)
}

func viewPrincipal(r record.Principal, _ int64) api.Principal {
	return api.Principal{PrincipalRef: r.Ref(), CreatedAt: r.Created}
}

// newPrincipal adds a principal to a change. A name that was ever taken is refused: its approvals and submissions
// stay under that name.
func newPrincipal(ctx context.Context, c *ledger.Change, who Principal, name string) (record.Principal, error) {
	if err := checkPrincipalName(name); err != nil {
		return record.Principal{}, err
	}
	k := record.PrincipalKey(who.Organization, name)
	if err := c.Load(ctx, k); err != nil {
		return record.Principal{}, err
	}
	if c.Version(k) != store.Absent {
		return record.Principal{}, workflow.Refuse(workflow.ErrExists, "name",
			"there is a principal %s already, and its name is never given to another: for another token of it name it (--principal %s), or choose another name", name, name)
	}
	made := addPrincipal(c, who.Organization, name)
	Audit(c, who, "principal.create", made.ID, "done", name)
	return made, nil
}

func addPrincipal(c *ledger.Change, org, name string) record.Principal {
	made := record.Principal{ID: record.NewID(record.PrincipalIDs, c.Now), Name: name, Created: c.Now}
	c.Create(record.PrincipalKey(org, name), made)
	return made
}

// EnsurePrincipal returns the principal of a name, and makes it in the change if there is none.
func EnsurePrincipal(ctx context.Context, c *ledger.Change, org, name string) (api.PrincipalRef, error) {
	made, ok, err := ledger.Load[record.Principal](ctx, c, record.PrincipalKey(org, name))
	if err == nil && !ok {
		made = addPrincipal(c, org, name)
	}
	return made.Ref(), err
}

// LoadPrincipals reads at once the records that FindPrincipal needs for several names.
func LoadPrincipals(ctx context.Context, c *ledger.Change, org string, names []string) error {
	var keys []store.Key
	for _, name := range names {
		if checkPrincipalName(name) == nil {
			keys = append(keys, record.PrincipalKey(org, name))
		}
	}
	return c.Load(ctx, keys...)
}

// FindPrincipal finds the principal of a name: one that was made here, or a subject of a registered issuer, as
// ISSUER/SUBJECT. The commit need not check the records: a name never changes its principal, and the subject of one
// issuer is never that of another which is registered later under the same name.
func FindPrincipal(ctx context.Context, c *ledger.Change, org, field, name string) (api.PrincipalRef, error) {
	issuer, subject, of := strings.Cut(name, "/")
	if of {
		if !isPlain(issuer) || subject == "" {
			return api.PrincipalRef{}, workflow.Invalid(field, "want the name of a principal, or ISSUER/SUBJECT, not %q", text.Cut(name, 80))
		}
		is, ok, err := ledger.Load[record.Settings[record.Issuer]](ctx, c, record.SettingsKey(org, kind.Issuer, issuer))
		if err == nil && !ok {
			err = workflow.Invalid(field, "there is no issuer %s: register it with dayfly apply, or name a principal", issuer)
		}
		return api.PrincipalRef{ID: record.SubjectID(is.V.I.URL, subject), Name: shownName(issuer, subject)}, err
	}
	if checkPrincipalName(name) == nil {
		made, ok, err := ledger.Load[record.Principal](ctx, c, record.PrincipalKey(org, name))
		if err != nil || ok {
			return made.Ref(), err
		}
	}
	return api.PrincipalRef{}, workflow.Invalid(field, "there is no principal %q: correct the name, or make it with dayfly principal create", text.Cut(name, 80))
}
