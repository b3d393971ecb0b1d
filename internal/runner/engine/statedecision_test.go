package engine

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R15, R16: nothing goes on with an empty or another state while one exists elsewhere, until the user says which of
// the two is meant.
func TestDecide(t *testing.T) {
	here := api.StateFound{Backend: "local", Settings: "a", Workspace: "default", Store: "machine"}
	known := func(lineage string, serial int64) *api.StateFound {
		f := here
		f.Lineage, f.Serial = lineage, serial
		return &f
	}
	moved := func(change func(*api.StateFound)) api.StateFound {
		f := here
		change(&f)
		return f
	}
	doc := func(lineage string, serial int64) *document {
		return &document{lineage: lineage, serial: serial, resources: 2}
	}
	beside := &folder{}
	main := otherState{name: "default", description: "terraform.tfstate beside the code", doc: doc("old", 5), from: beside, main: true}
	prod := otherState{name: "prod", description: "terraform.tfstate.d/prod", doc: doc("prod", 9), from: beside}
	namesake := otherState{name: "ws_1", description: "the directory ws_1", doc: doc("dead", 3), from: &folder{}}
	declared := moved(func(f *api.StateFound) { f.Declared = "s3" })

	for name, tc := range map[string]struct {
		stateFindings stateFindings
		take          string // name of what is taken over
		says          string // of the log, or of the refusal
		fine          bool
	}{
		"first run, nothing anywhere":     {stateFindings{is: here}, "", "begins empty", true},
		"first run, a state in the place": {stateFindings{is: here, doc: doc("x", 1)}, "", "", true},
		"as the last run left it":         {stateFindings{is: here, doc: doc("x", 4), known: known("x", 4)}, "", "", true},
		"changed elsewhere since":         {stateFindings{is: here, doc: doc("x", 7), known: known("x", 4)}, "", "its serial is 7, and was 4", true},
		"an older state":                  {stateFindings{is: here, doc: doc("x", 3), known: known("x", 4)}, "", "serial 3 instead of 4", false},
		"another lineage":                 {stateFindings{is: here, doc: doc("y", 9), known: known("x", 4)}, "", "instead of lineage x", false},
		"no state any more":               {stateFindings{is: here, known: known("x", 4)}, "", "left lineage x, serial 4", false},
		"known, and never had a state":    {stateFindings{is: here, known: known("", 0)}, "", "begins empty", true},
		"other settings":                  {stateFindings{is: moved(func(f *api.StateFound) { f.Settings = "b" }), doc: doc("x", 4), known: known("x", 4)}, "", "other settings of", false},
		"another machine":                 {stateFindings{is: moved(func(f *api.StateFound) { f.Store = "other" }), known: known("x", 4)}, "", "another machine", false},
		"another backend":                 {stateFindings{is: moved(func(f *api.StateFound) { f.Backend = "s3" }), known: known("x", 4)}, "", "backend local instead of s3", false},
		"another engine's workspace":      {stateFindings{is: moved(func(f *api.StateFound) { f.Workspace = "prod" }), known: known("x", 4)}, "", "default instead of prod", false},
		"moved before there was a state":  {stateFindings{is: moved(func(f *api.StateFound) { f.Settings = "b" }), known: known("", 0)}, "", "begins empty", true},
		"moved along, said so":            {stateFindings{is: moved(func(f *api.StateFound) { f.Settings = "b" }), doc: doc("x", 4), known: known("x", 4), takeOver: true}, "", "already", true},
		"moved to an empty place, and the old one is there": {
			stateFindings{is: moved(func(f *api.StateFound) { f.Backend = "s3" }), known: known("dead", 3), found: []otherState{namesake}, takeOver: true}, "ws_1", "", true,
		},
		"the code declares another place":             {stateFindings{is: declared}, "", "declares the backend s3", false},
		"the code declares another place, state here": {stateFindings{is: declared, doc: doc("x", 1)}, "", "declares the backend s3", false},
		"it declared that before, and was told":       {stateFindings{is: declared, doc: doc("x", 4), known: func() *api.StateFound { f := declared; f.Lineage, f.Serial = "x", 4; return &f }()}, "", "", true},
		"it declares that since":                      {stateFindings{is: declared, doc: doc("x", 4), known: known("x", 4)}, "", "declared none instead of s3", false},
		"declared, begin anew":                        {stateFindings{is: declared, beginAnew: true}, "", "begin_anew", true},
		"declared, taken over":                        {stateFindings{is: declared, found: []otherState{main}, takeOver: true}, "default", "", true},
		"declared, taken over onto a state":           {stateFindings{is: declared, doc: doc("x", 1), found: []otherState{main}, takeOver: true}, "", "is not overwritten", false},
		"beside the code":                             {stateFindings{is: here, found: []otherState{main}}, "", "terraform.tfstate beside the code (lineage old, serial 5, 2 resources)", false},
		"beside the code, also once known as empty":   {stateFindings{is: here, found: []otherState{main}, known: known("", 0)}, "", "beside the code", false},
		"beside the code, and a state here":           {stateFindings{is: here, doc: doc("x", 1), found: []otherState{main}}, "", "", true},
		"beside the code, taken over":                 {stateFindings{is: here, found: []otherState{main, prod}, takeOver: true}, "default", "", true},
		"beside the code, another by its name":        {stateFindings{is: here, found: []otherState{main, prod}, takeOver: true, from: "prod"}, "prod", "", true},
		"beside the code, one that is not there":      {stateFindings{is: here, found: []otherState{main, prod}, takeOver: true, from: "dev"}, "", "--take-over-from", false},
		"beside the code, begin anew":                 {stateFindings{is: here, found: []otherState{main}, beginAnew: true}, "", "begin_anew", true},
		"only other workspaces of the engine beside":  {stateFindings{is: here, found: []otherState{prod, {name: "dev", description: "dev", doc: doc("d", 1), from: beside}}, takeOver: true}, "", "prod for", false},
		"a deleted namesake's":                        {stateFindings{is: here, found: []otherState{namesake}}, "", "the directory ws_1", false},
		"a deleted namesake's, taken over":            {stateFindings{is: here, found: []otherState{namesake}, takeOver: true}, "ws_1", "", true},
		"one may be withheld":                         {stateFindings{is: here, withheld: true}, "", "an admin of both projects", false},
		"one may be withheld, taken over":             {stateFindings{is: here, withheld: true, takeOver: true}, "", "may take over", false},
		"one may be withheld, begin anew":             {stateFindings{is: here, withheld: true, beginAnew: true}, "", "begin_anew", true},
		"one may be withheld, another is taken over":  {stateFindings{is: here, withheld: true, found: []otherState{namesake}, takeOver: true}, "ws_1", "", true},
		"one may be withheld, and a state here":       {stateFindings{is: here, withheld: true, doc: doc("x", 1)}, "", "", true},
		"two that could be meant":                     {stateFindings{is: here, found: []otherState{main, namesake}, takeOver: true}, "", "default for", false},
		"taken over before":                           {stateFindings{is: here, doc: doc("old", 6), known: known("old", 6), found: []otherState{main}, takeOver: true}, "", "already", true},
		"another is here by now":                      {stateFindings{is: here, doc: doc("x", 6), known: known("x", 6), found: []otherState{main}, takeOver: true}, "", "already", true},
		"nothing to take over":                        {stateFindings{is: here, takeOver: true}, "", "nothing to take over", true},
		"nothing to take over, and a state is lost":   {stateFindings{is: here, known: known("x", 4), takeOver: true}, "", "none beside the code", false},
		"others in the same backend":                  {stateFindings{is: here, others: []string{"prod", "dev"}}, "", "prod, dev", false},
		"another backend was set up in the source":    {stateFindings{is: here, doc: doc("x", 1), differs: []string{"bucket"}}, "", "in bucket", false},
		"that is known by now":                        {stateFindings{is: here, doc: doc("x", 1), differs: []string{"bucket"}, known: known("x", 1)}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.stateFindings.place = "the place"
			v, err := decide(tc.stateFindings)
			said := v.note
			if err != nil {
				f, ok := errors.AsType[*Failure](err)
				if !ok || f.Reason != workflow.ReasonStateElsewhere || !strings.Contains(f.Detail, " --") || len(f.Detail) > maxDetail {
					t.Fatalf("got %v, want a refusal that says what can be done", err)
				}
				said = f.Detail
			}
			if got := err == nil; got != tc.fine {
				t.Fatalf("goes on: %v (%s), want %v", got, said, tc.fine)
			}
			if !strings.Contains(said, tc.says) {
				t.Errorf("it says %q, want %q in it", said, tc.says)
			}
			taken := ""
			if v.take != nil {
				taken = v.take.name
			}
			if taken != tc.take {
				t.Errorf("takes over %q, want %q", taken, tc.take)
			}
		})
	}
}

func TestReadDocument(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		want  *document
		wrong bool
	}{
		"nothing":             {"", nil, false},
		"blank":               {" \n", nil, false},
		"an empty place":      {`{"version":4,"serial":0,"lineage":"","outputs":{},"resources":[]}`, nil, false},
		"without resources":   {`{"lineage":"a","serial":3,"resources":[]}`, &document{lineage: "a", serial: 3}, false},
		"with resources":      {`{"resources":[{"a":[1,[2]]},{"b":{}},3],"serial":3,"lineage":"a"}`, &document{lineage: "a", serial: 3, resources: 3}, false},
		"encrypted":           {`{"serial":1,"lineage":"a","encrypted_data":"x"}`, &document{lineage: "a", serial: 1, sealed: true}, false},
		"before version 4":    {`{"version":3,"serial":1,"lineage":"a","modules":[{"resources":{"x":{}}}]}`, &document{lineage: "a", serial: 1, sealed: true}, false},
		"not JSON":            {`state`, nil, true},
		"a list":              {`[]`, nil, true},
		"cut short":           {`{"lineage":"a","resources":[{`, nil, true},
		"of another form":     {`{"serial":"x"}`, nil, true},
		"with checks":         {`{"lineage":"a","check_results":[{"object_kind":"check","config_addr":"check.b","status":"fail","objects":[{"failure_messages":["x"]}]}],"serial":3}`, &document{lineage: "a", serial: 3, checks: checks{"check.b"}}, false},
		"no checks":           {`{"lineage":"a","check_results":null,"serial":3}`, &document{lineage: "a", serial: 3}, false},
		"checks of a form":    {`{"lineage":"a","check_results":{"x":[]},"serial":3}`, &document{lineage: "a", serial: 3}, false},
		"checks cut short":    {`{"lineage":"a","check_results":[{"object_kind":"check"`, nil, true},
		"resources of a form": {`{"lineage":"a","resources":{"x":[]}}`, &document{lineage: "a"}, false},
	} {
		got, err := readDocument(strings.NewReader(tc.text))
		if (err != nil) != tc.wrong {
			t.Errorf("%s: got %v", name, err)
		}
		if err == nil && (got == nil) != (tc.want == nil) || got != nil && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// The outputs of a state are those that the engine would print, and the engine is asked where they are not to be read.
func TestDocument_HasTheOutputsOfTheState(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	const outputs = `{"n": {"value": 1, "type": "number"}, "s": {"value": "x", "type": "string", "sensitive": true}}`
	for name, tc := range map[string]struct {
		state string
		want  string
		err   error
	}{
		"indented":         {"{\n  \"version\": 4, \"lineage\": \"a\",\n  \"outputs\" :\n\t" + outputs + ",\n  \"resources\": [1]\n}", outputs, nil},
		"none":             {`{"version":4,"lineage":"a","outputs":{},"resources":[1]}`, `{}`, nil},
		"left out":         {`{"version":4,"lineage":"a","resources":[1]}`, "", errNotToRead},
		"encrypted":        {`{"lineage":"a","encrypted_data":"x","outputs":{}}`, "", errNotToRead},
		"before version 4": {`{"lineage":"a","outputs":{},"modules":[{}]}`, "", errNotToRead},
		"too large":        {`{"version":4,"lineage":"a","outputs":{"n":{"value":"` + strings.Repeat("x", maxOutputJSON) + `"}}}`, "", errTooLong},
	} {
		if err := os.WriteFile(filepath.Join(dir, "state"), []byte(tc.state), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := documentOf(f, "state")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := d.outputs(); string(got) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %.200q (%v), want %q (%v)", name, got, err, tc.want, tc.err)
		}
	}
	if _, err := (*document)(nil).outputs(); !errors.Is(err, errNotToRead) {
		t.Errorf("without a state: %v", err)
	}
}

func FuzzReadDocument(f *testing.F) {
	f.Add(`{"version":4,"serial":2,"lineage":"a","resources":[{"x":1}]}`)
	f.Add(`{"lineage":"a","resources":[[[{`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := readDocument(strings.NewReader(text))
		if err == nil && d != nil && (d.resources < 0 || d.resources > len(text)) {
			t.Errorf("%d resources in %d bytes", d.resources, len(text))
		}
	})
}

// Only settings that say where a state is make a place another one: credentials come and go.
func TestDigest_IsOfWhereTheStateIs(t *testing.T) {
	s3 := func(change map[string]any) map[string]any {
		out := map[string]any{"bucket": "b", "key": "k", "region": "r", "access_key": "AKIA", "profile": nil}
		for name, v := range change {
			out[name] = v
		}
		return out
	}
	base := digest("s3", s3(nil))
	for _, same := range []map[string]any{{"access_key": "other"}, {"profile": "p"}, {"region": "elsewhere"}, {"skip_region_validation": true}} {
		if digest("s3", s3(same)) != base {
			t.Errorf("%v makes it another place", same)
		}
	}
	for _, other := range []map[string]any{{"bucket": "x"}, {"key": "x"}, {"endpoints": map[string]any{"s3": "http://x"}}} {
		if digest("s3", s3(other)) == base {
			t.Errorf("%v leaves it the same place", other)
		}
	}
	if digest("unheard-of", map[string]any{"place": "a", "auth_token": "1"}) != digest("unheard-of", map[string]any{"place": "a", "auth_token": "2"}) {
		t.Error("a token of a backend that is not listed makes it another place")
	}
	got := differing("s3", s3(map[string]any{"key": "x", "profile": "p"}), s3(map[string]any{"bucket": nil}))
	if want := "bucket key"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestEngineWorkspace(t *testing.T) {
	for _, tc := range []struct {
		said, environment, selected, want string
		wrong                             bool
	}{
		{"", "", "", "default", false}, {"a", "b", "c", "a", false}, {"", "b", "c", "b", false}, {"", "", "c\n", "c", false},
		{"", "", "../x", "", true}, {"..", "", "", "", true}, {"", "a/b", "", "", true},
	} {
		got, err := engineWorkspace(tc.said, tc.environment, tc.selected)
		if got != tc.want || (err != nil) != tc.wrong {
			t.Errorf("%+v: got %q, %v", tc, got, err)
		}
	}
}
