package identity

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Settings are the named settings of one kind: T is their form in the API, V the stored one.
type Settings[T api.Setting, V any] struct {
	row    kind.Kind
	ledger *ledger.Ledger
	rules  SettingsRules[T, V]
}

// SettingsRules are the differences between kinds of settings.
type SettingsRules[T api.Setting, V any] struct {
	// Prepare refuses an invalid setting, and adds to its normal form the data that only the control plane sets. old
	// is the setting before the change; nil if it is new. Prepare has the commit check the records that it goes by.
	Prepare func(ctx context.Context, c *ledger.Change, org string, in T, old *record.Settings[V]) (V, error)
	// View is a setting in the API.
	View func(record.Settings[V], int64) T
	// Brief describes a setting in the audit trail.
	Brief func(V) string
	// OnPut adds more writes to the change that creates or changes a setting; nil means none.
	OnPut func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[V]) error
	// OnDelete adds more writes to the change that deletes a setting, or refuses the deletion; nil means neither.
	OnDelete func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[V]) error
}

// SettingsFor returns the settings of the kind with a name, over a ledger.
func SettingsFor[T api.Setting, V any](l *ledger.Ledger, name string, rules SettingsRules[T, V]) *Settings[T, V] {
	row, _ := kind.Of(name)
	return &Settings[T, V]{row: row, ledger: l, rules: rules}
}

// Put creates or changes a setting.
func (s *Settings[T, V]) Put(ctx context.Context, who Principal, in T) (out T, outcome api.Outcome, err error) {
	action := s.row.Name + ".apply"
	name, version := in.Key()
	if err := Allow(ctx, s.ledger, who, api.RoleAdmin, action, name); err != nil {
		return out, "", err
	}
	if err := CheckName(name); err != nil {
		return out, "", err
	}
	in = in.Normal(who.Organization).(T)
	err = s.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		key := record.SettingsKey(who.Organization, s.row.Name, name)
		old, exists, err := ledger.Load[record.Settings[V]](ctx, c, key)
		if err != nil {
			return err
		}
		if err := c.At(key, version, s.row.Noun()); err != nil {
			return err
		}
		before := &old
		if !exists {
			before = nil
			if err := s.room(ctx, c, who.Organization); err != nil {
				return err
			}
		}
		prepared, err := s.rules.Prepare(ctx, c, who.Organization, in, before)
		if err != nil {
			return err
		}
		if exists && reflect.DeepEqual(prepared, old.V) {
			outcome, out = api.OutcomeUnchanged, s.rules.View(old, c.Version(key))
			return ledger.ErrUnchanged
		}
		rec := record.Settings[V]{ID: cmp.Or(old.ID, record.NewID(s.row.IDs, c.Now)), Created: old.Created, By: who.Name, ByID: who.ID, V: prepared}
		if outcome = api.OutcomeChanged; !exists {
			outcome, rec.Created = api.OutcomeCreated, c.Now
		}
		c.Put(key, rec)
		if s.rules.OnPut != nil {
			if err := s.rules.OnPut(ctx, c, who.Organization, rec); err != nil {
				return err
			}
		}
		Audit(c, who, action, name, "done", fmt.Sprintf("%s, %s", outcome, s.rules.Brief(prepared)))
		out = s.rules.View(rec, c.Version(key)+1)
		return nil
	})
	return out, outcome, err
}

// room refuses one more setting than an organization may have.
func (s *Settings[T, V]) room(ctx context.Context, c *ledger.Change, org string) error {
	if s.row.Max == 0 {
		return nil
	}
	n := 0
	for _, err := range c.All(ctx, record.SettingsOf(org, s.row.Name, 200)) {
		if err != nil {
			return err
		}
		n++
	}
	if n >= s.row.Max {
		return workflow.Invalid("name", "an organization has at most %d %s: delete one first", s.row.Max, s.row.Plural)
	}
	return nil
}

// List lists the settings of the kind, by name.
func (s *Settings[T, V]) List(ctx context.Context, who Principal, cursor string, limit int) (out api.Page[T], err error) {
	if err := Allow(ctx, s.ledger, who, s.row.Reader, s.row.Name+".list", ""); err != nil {
		return out, err
	}
	scan := record.SettingsOf(who.Organization, s.row.Name, ledger.PageSize(limit, 50))
	return ledger.ListOf(ctx, s.ledger, scan, cursor, s.rules.View)
}

// Show shows a setting.
func (s *Settings[T, V]) Show(ctx context.Context, who Principal, name string) (out T, err error) {
	if err := Allow(ctx, s.ledger, who, s.row.Reader, s.row.Name+".show", name); err != nil {
		return out, err
	}
	c := s.ledger.View()
	rec, err := s.Find(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	return s.rules.View(rec, c.Version(record.SettingsKey(who.Organization, s.row.Name, name))), nil
}

// Find reads a setting into a change, and refuses an unknown name.
func (s *Settings[T, V]) Find(ctx context.Context, c *ledger.Change, org, name string) (record.Settings[V], error) {
	rec, ok, err := ledger.Load[record.Settings[V]](ctx, c, record.SettingsKey(org, s.row.Name, name))
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrNotFound, s.row.Name, "there is no %s %q", s.row.Noun(), text.Cut(name, 64))
	}
	return rec, err
}

// Delete deletes a setting.
func (s *Settings[T, V]) Delete(ctx context.Context, who Principal, name string) error {
	action := s.row.Name + ".delete"
	if err := Allow(ctx, s.ledger, who, api.RoleAdmin, action, name); err != nil {
		return err
	}
	return s.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rec, err := s.Find(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		c.Remove(record.SettingsKey(who.Organization, s.row.Name, name))
		if s.rules.OnDelete != nil {
			if err := s.rules.OnDelete(ctx, c, who.Organization, rec); err != nil {
				return err
			}
		}
		Audit(c, who, action, name, "done", s.rules.Brief(rec.V))
		return nil
	})
}

// SettingsCalls are Settings whose type is known by their row alone.
type SettingsCalls interface {
	Kind() kind.Kind
	PutSetting(ctx context.Context, who Principal, in api.Setting) (api.Setting, api.Outcome, error)
	ListSettings(ctx context.Context, who Principal, cursor string, limit int) (any, error)
	ShowSetting(ctx context.Context, who Principal, name string) (api.Setting, error)
	Delete(ctx context.Context, who Principal, name string) error
}

// Kind implements SettingsCalls.
func (s *Settings[T, V]) Kind() kind.Kind { return s.row }

// PutSetting implements SettingsCalls.
func (s *Settings[T, V]) PutSetting(ctx context.Context, who Principal, in api.Setting) (api.Setting, api.Outcome, error) {
	return s.Put(ctx, who, in.(T)) // of the type of the row
}

// ListSettings implements SettingsCalls.
func (s *Settings[T, V]) ListSettings(ctx context.Context, who Principal, cursor string, limit int) (any, error) {
	return s.List(ctx, who, cursor, limit)
}

// ShowSetting implements SettingsCalls.
func (s *Settings[T, V]) ShowSetting(ctx context.Context, who Principal, name string) (api.Setting, error) {
	return s.Show(ctx, who, name)
}
