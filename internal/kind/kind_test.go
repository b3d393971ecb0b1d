package kind_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// field finds a field of a struct by a path of JSON names.
func field(t reflect.Type, path string) (reflect.Type, bool) {
	for name := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		f, ok := reflect.StructField{}, false
		for _, one := range reflect.VisibleFields(t) {
			if n, _, _ := strings.Cut(one.Tag.Get("json"), ","); n == name {
				f, ok = one, true
			}
		}
		if !ok {
			return nil, false
		}
		t = f.Type
	}
	return t, true
}

func TestTable_NamesFieldsAndKindsThatExist(t *testing.T) {
	for _, k := range kind.All() {
		for _, name := range k.Hidden {
			if _, ok := field(k.Type, name); !ok {
				t.Errorf("%s: %s is hidden, and not a field", k.Name, name)
			}
		}
		if k.Page == nil {
			continue
		}
		for name, of := range k.Refs {
			if _, ok := field(k.Type, name); !ok {
				t.Errorf("%s: %s refers to a %s, and is not a field", k.Name, name, of)
			}
			if _, ok := kind.Of(of); !ok {
				t.Errorf("%s: %s refers to an unknown kind %s", k.Name, name, of)
			}
		}
		want := map[kind.Form]reflect.Type{kind.Off: reflect.TypeFor[bool](), kind.Until: reflect.TypeFor[time.Time]()}
		for _, c := range k.Columns {
			for _, name := range append(slices.Clone(c.Fields), k.About) {
				if got, ok := field(k.Type, name); !ok || name != k.About && want[c.Form] != nil && got != want[c.Form] {
					t.Errorf("%s: column %s has %s, which is %v", k.Name, c.Head, name, got)
				}
			}
		}
		for _, said := range []string{k.Plural, k.Command, k.Tag, k.Example, k.IDs, k.Reader, k.Put, k.List, k.Show, k.Delete, k.Loss} {
			if said == "" {
				t.Errorf("%s: a setting says everything of itself: %+v", k.Name, k)
			}
		}
		if workflow.CheckNoID(k.IDs+"x") == nil {
			t.Errorf("%s: a name may begin with %s", k.Name, k.IDs)
		}
	}
}

// The control plane keeps the value that a dry run compares with: the normal form of a normal form is itself, and has
// nothing that only the control plane says.
func TestSettings_TheNormalFormIsItsOwn(t *testing.T) {
	now := time.Date(2027, 3, 1, 12, 0, 0, 5, time.FixedZone("", 3600))
	for _, in := range []api.Setting{
		api.Issuer{Name: "a", URL: "https://token.actions.githubusercontent.com", Pipelines: &api.Pipelines{Kind: "github"}, CreatedAt: &now, Version: 3},
		api.GitHost{Name: "a", Kind: api.HostGitLab, Members: []api.Member{{ID: 1, PrincipalID: "prn_1"}}, Generation: 2, CreatedAt: &now, Version: 3},
		api.Notification{Name: "a", Events: []string{"stuck", "drift", "stuck"}, CreatedAt: &now, Version: 3},
		api.Schedule{Name: "a", Cron: " 1  * * * *", Projects: []string{"b", "a"}, SpreadOver: "1m", EditedBy: "b", NextAt: &now, Since: &now, ResumedAt: &now, CreatedAt: &now, Version: 3},
		api.PolicyGroup{Name: "a", Workspaces: []string{"b", "a", "b"}, EditedBy: "b", CreatedAt: &now, Version: 3},
		api.Waiver{Name: "a", Reason: " why ", Until: now, GivenBy: "b", CreatedAt: &now, Version: 3},
	} {
		once := in.Normal("acme")
		if diff := cmp.Diff(once, once.Normal("other")); diff != "" {
			t.Errorf("%T (-once +twice):\n%s", in, diff)
		}
		if name, version := once.Key(); name != "a" || version != 0 {
			t.Errorf("%T: the normal form has name %q and version %d", in, name, version)
		}
		if got := kind.For(in); got.Type != reflect.TypeOf(in) {
			t.Errorf("%T is of kind %s", in, got.Name)
		}
		for i, v := 0, reflect.ValueOf(once); i < v.NumField(); i++ {
			if doc := v.Type().Field(i).Tag.Get("doc"); strings.HasSuffix(doc, "not taken") && !v.Field(i).IsZero() {
				t.Errorf("%T: %s stays, and is not taken", in, v.Type().Field(i).Name)
			}
		}
	}
}
