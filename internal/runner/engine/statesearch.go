package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// findStates collects the findings for decide.
func (t *terraform) findStates(ctx context.Context, overridden *otherState) (stateFindings, error) {
	spec := t.j.Spec
	s := stateFindings{
		place: t.place.String(), is: t.is, doc: t.doc, known: spec.Known, withheld: spec.Withheld,
		takeOver: spec.TakeOver, beginAnew: spec.BeginAnew, from: spec.TakeOverFrom,
	}
	if spec.BeginAnew {
		return s, nil // nothing else counts
	}
	var err error
	if t.doc == nil || spec.TakeOver {
		if s.found, err = t.besideCode(); err != nil {
			return s, err
		}
	}
	if overridden != nil {
		s.found = append(s.found, *overridden)
	}
	if s.differs, err = t.differs(); err != nil || t.doc != nil {
		return s, err
	}

	olds, err := t.earlierStates(ctx)
	s.found = append(s.found, olds...)
	if err != nil {
		return s, err
	}
	if t.inCloud() && t.workspace == defaultWorkspace {
		return s, nil // init has found the one that the block names
	}
	all, err := t.workspaces(ctx)
	s.others = slices.DeleteFunc(all, func(name string) bool {
		return name == t.workspace || name == defaultWorkspace && t.workspace != defaultWorkspace && !t.defaultHolds(ctx)
	})
	return s, err
}

// differs lists the settings in which the backend differs from that of the source's own init. That one matters only
// if the run uses the backend that the code declares: any other place is the workspace's choice.
func (t *terraform) differs() ([]string, error) {
	own, err := t.asideBackend()
	switch {
	case err != nil:
		return nil, err
	case own.Type == t.settings.Type && t.place.kind == api.StateSource:
		return differing(own.Type, own.Config, t.settings.Config), nil
	case own.Type != "" && own.Type != "local" && !t.overrides():
		return []string{"its type, " + own.Type}, nil
	}
	return nil, nil
}

// defaultHolds says whether the engine's default workspace, which every backend lists, has a state.
func (t *terraform) defaultHolds(ctx context.Context) bool {
	workspace := t.workspace
	t.workspace = defaultWorkspace
	defer func() { t.workspace = workspace }()
	doc, err := t.document(ctx)
	return err == nil && doc.holds()
}

// asideBackend is the backend that was set up in the source itself.
func (t *terraform) asideBackend() (backendRecord, error) {
	if t.aside == nil {
		return backendRecord{}, nil
	}
	own, err := recorded(t.aside, asideBackend)
	if err != nil {
		return own, runnerError(fmt.Errorf(".terraform of the source: %w", err))
	}
	return own, nil
}

// besideCode lists the states that lie beside the code.
func (t *terraform) besideCode() ([]otherState, error) {
	if err := t.code.outside(); err != nil {
		return nil, err
	}
	file, others := path.Clean(cmp.Or(t.code.path, stateName)), path.Clean(cmp.Or(t.code.workspaceDir, workspacesName))
	var out []otherState
	add := func(f *folder, name, file string) error {
		if f == nil { // nothing was set aside
			return nil
		}
		if f == t.aside && f.hollow(file) && path.Dir(file) != "." && !strings.HasPrefix(file, workspacesName+"/") {
			return elsewhere("Move the state beside the code and change its path to the name alone, or run it again with --begin-anew to go on without it",
				"the code declares the backend local with the path %s, and a state below another directory is not given to a container: it may be another workspace's", quote(file))
		}
		doc, err := documentOf(f, file)
		if err != nil {
			return stateBeside(err)
		}
		if doc.holds() {
			out = append(out, otherState{name: name, description: file + " beside the code", doc: doc, from: f, file: file, main: name == t.workspace})
		}
		return nil
	}
	for _, f := range []*folder{t.aside, t.root} { // one with another ending is still where it was
		if err := add(f, defaultWorkspace, file); err != nil {
			return nil, err
		}
		names, err := f.names(others)
		if err != nil {
			return nil, stateBeside(err)
		}
		for _, name := range names {
			if err := add(f, name, path.Join(others, name, stateName)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// stateBeside is the error of a state beside the code that was not read. A link that leads out of the source leads to
// itself in the copy.
func stateBeside(err error) error {
	if errors.Is(err, syscall.ELOOP) {
		return elsewhere("Name a directory above both as the source, or run it again with --begin-anew to go on without the state",
			"the code declares the backend local with a path over a link that leads out of the source, and the state there was not read")
	}
	return runnerError(fmt.Errorf("state beside the code: %w", err))
}

// outside refuses code whose backend local keeps its state outside the source: a runner that is root must not reveal
// files there, not even whether they exist.
func (d declared) outside() error {
	const todo = "Move the state beside the code, or run it again with --begin-anew to go on without it"
	if d.computed {
		return elsewhere(todo, "the code declares the backend local with a path that it computes, so the place of its state is not known")
	}
	for _, one := range [][2]string{{"path", d.path}, {"workspace_dir", d.workspaceDir}} {
		if one[1] != "" && !filepath.IsLocal(filepath.FromSlash(one[1])) {
			return elsewhere(todo, "the code declares the backend local with the %s %s, which is not below its root module, and was not read", one[0], quote(one[1]))
		}
	}
	return nil
}

// earlierStates lists the states in other places: where the workspace itself had its own, and those of deleted namesakes.
func (t *terraform) earlierStates(ctx context.Context) ([]otherState, error) {
	var out []otherState
	for _, dir := range t.j.StateOlds {
		f, err := openFolder(dir, nil)
		if err != nil {
			return out, runnerError(err)
		}
		t.opened = append(t.opened, f)
		doc, err := documentOf(f, statePath(t.workspace))
		if err != nil {
			return out, runnerError(fmt.Errorf("state in the directory %s: %w", filepath.Base(dir), err))
		}
		if doc.holds() {
			key := filepath.Base(dir)
			out = append(out, otherState{name: key, description: t.locationOf(key), doc: doc, from: f, file: statePath(t.workspace)})
		}
	}
	for _, p := range t.oldBuckets() {
		doc, file, err := t.probe(ctx, p)
		if err != nil {
			return out, err
		}
		if doc.holds() {
			out = append(out, otherState{name: path.Base(path.Dir(p.key)), description: "the state " + p.String(), doc: doc, from: t.temp, file: file})
		}
	}
	return out, nil
}

// locationOf describes a directory of states.
func (t *terraform) locationOf(key string) string {
	where := place{kind: api.StateDirectory, key: t.j.Spec.Organization + "/" + key}.String()
	if key == t.j.Spec.State.Key {
		return where
	}
	return where + ", of an earlier workspace of this name"
}

// oldBuckets are the places in buckets where a state of the workspace's name may be.
func (t *terraform) oldBuckets() []place {
	spec := t.j.Spec
	var out []place
	add := func(s api.State, key string) {
		p := place{kind: api.StateS3, bucket: s, key: spec.Organization + "/" + key + "/" + stateName}
		there := t.place.kind == api.StateS3 && t.place.key == p.key && t.place.bucket.Bucket == s.Bucket
		if !there && s.Bucket != "" && !slices.ContainsFunc(out, func(o place) bool { return o.key == p.key }) {
			out = append(out, p)
		}
	}
	for _, n := range spec.Namesakes {
		switch {
		case n.State.Kind == api.StateS3:
			add(n.State, n.ID)
		case n.State.Default == api.StateS3:
			add(t.j.Bucket, n.ID)
		}
	}
	return out
}

// probe looks at the state in another place, from a root module that has nothing but a backend.
func (t *terraform) probe(ctx context.Context, p place) (*document, string, error) {
	name := newName("probe-", "")
	if err := t.temp.mkdir(name); err != nil {
		return nil, "", runnerError(err)
	}
	root, err := openFolder(t.temp.join(name), t.j.Owner)
	if err != nil {
		return nil, "", runnerError(err)
	}
	t.opened = append(t.opened, root)
	other := *t
	other.place, other.root, other.backendFile, other.code = p, root, "", declared{}
	other.j.Root = root.path
	other.silent = true
	if err = root.mkdir("data"); err == nil {
		other.data, err = openFolder(root.join("data"), t.j.Owner)
	}
	if err != nil {
		return nil, "", runnerError(err)
	}
	t.opened = append(t.opened, other.data)
	if err := other.override(p); err != nil {
		return nil, "", err
	}
	if err := other.initialise(ctx); err != nil {
		return nil, "", err
	}
	if t.workspace != defaultWorkspace {
		if all, err := other.workspaces(ctx); err != nil || !slices.Contains(all, t.workspace) {
			return nil, "", err
		}
	}
	return other.pull(ctx)
}
