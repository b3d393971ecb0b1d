package record_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

func TestSettings_CoverEachFieldThatChangesAPlan(t *testing.T) {
	free := []string{"ID", "Version", "Description", "DefaultPriority", "MaxActive", "Approval", "PullRequests", "After"}
	none := record.Workspace{ID: "ws_a"}.Settings()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.Workspace]()) {
		if field.Anonymous {
			continue // its fields follow
		}
		var w api.Workspace
		f, name := reflect.ValueOf(&w).Elem().FieldByIndex(field.Index), field.Name
		switch f.Kind() { //nolint:exhaustive // those that a workspace has
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(f.Type().Elem()))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Struct:
			w.Source.Directory = "/x"
		default:
			t.Fatalf("%s is of a new kind: set it here", name)
		}
		if counts := (record.Workspace{W: w}).Settings() != none; counts == slices.Contains(free, name) {
			t.Errorf("%s counts: %t", name, counts)
		}
	}
}

func TestSettings_AreTheSameOnceStored(t *testing.T) {
	ws := record.Workspace{W: api.Workspace{Name: "net", RunSettings: api.RunSettings{Variables: map[string]any{"b": 1, "a": []any{1.5, "x", nil}, "c": map[string]any{}}, Environment: map[string]string{}}}}
	stored, err := record.Decode[record.Workspace](record.Encode(store.Key{}, ws))
	if err != nil || stored.Settings() != ws.Settings() {
		t.Errorf("the digest is %s, once stored %s: %v", ws.Settings(), stored.Settings(), err)
	}
}
