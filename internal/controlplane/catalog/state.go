package catalog

import (
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// keepState is the state setting to store: the requested one, with its place in full. A setting that stays the same
// keeps its default. It is a pure function.
func keepState(before, asked *api.State, id, defaultKind string) *api.State {
	want := api.State{}
	if asked != nil {
		want = *asked
	}
	if before != nil {
		same := want
		same.Key = before.Key
		if reflect.DeepEqual(same, showState(*before)) {
			return before
		}
	}
	want.Key = id
	if want.Kind == "" {
		want.Kind, want.Default = api.StateSource, defaultKind
	}
	return &want
}

// showState is a stored setting as the API shows it: without a kind that is a default.
func showState(s api.State) api.State {
	if s.Default != "" {
		s.Kind, s.Default = "", ""
	}
	return s
}

var (
	engineWorkspace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,89}$`) })
	settingName     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`) })
)

// checkState refuses a state setting that contradicts itself, or that sets a field which only the control plane sets.
func checkState(w *api.Workspace, before *api.State) error {
	if err := checkStack(*w); err != nil {
		return err
	}
	s := w.State
	if s == nil {
		return nil
	}
	engine := api.EngineOf(w.Engine)
	if s.Kind != "" && engine.Places != nil && !slices.Contains(engine.Places, s.Kind) {
		return refuseState("kind", "with engine %s, kind is %s: %s", w.Engine, strings.Join(engine.Places, " or "), engine.OwnState)
	}
	if err := checkStatePlace(*s); err != nil {
		return err
	}
	if s.Default != "" || s.Key != "" && (before == nil || s.Key != before.Key) {
		return refuseState("key", "key and default are set by the control plane; leave them out")
	}
	return checkStateOfEngine(w.Engine, *s)
}

// checkStateOfEngine checks the engine's workspace and its backend settings.
func checkStateOfEngine(name string, s api.State) error {
	engine := api.EngineOf(name)
	if engine.OwnState != "" && (s.Workspace != "" || len(s.BackendConfig) > 0) {
		return refuseState("", "workspace and backend_config go with the engines terraform and tofu")
	}
	if s.Workspace != "" && name != api.EnginePulumi && !engineWorkspace().MatchString(s.Workspace) {
		return refuseState("workspace", "an engine's workspace has 1 to 90 characters of A-Z, a-z, 0-9, ., _ and -; %q does not", text.Cut(s.Workspace, 100))
	}
	return checkBackendConfig(s)
}

func refuseState(field, format string, args ...any) error {
	return workflow.Invalid(strings.TrimSuffix("state."+field, "."), format, args...)
}

// checkStatePlace checks the kind of place of a state, and the fields that go with it.
func checkStatePlace(s api.State) error {
	switch s.Kind {
	case "", api.StateSource, api.StateDirectory:
		if s.Bucket != "" || s.Region != "" || s.Endpoint != "" || s.KMSKeyARN != "" {
			return refuseState("", "bucket, region, endpoint and kms_key_arn go with kind s3")
		}
		return nil
	case api.StateS3:
		if s.Bucket == "" || s.Region == "" {
			return refuseState("", "kind s3 needs a bucket and a region")
		}
		if u, err := url.Parse(s.Endpoint); s.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil) {
			return refuseState("endpoint", "the endpoint is an http or https address without credentials")
		}
		return nil
	}
	return refuseState("kind", "kind is source, directory or s3, not %q", text.Cut(s.Kind, 40))
}

// checkBackendConfig refuses settings of a backend that cannot be used, or that hold a secret.
func checkBackendConfig(s api.State) error {
	if len(s.BackendConfig) > 0 && s.Kind != "" && s.Kind != api.StateSource {
		return refuseState("backend_config", "backend_config completes the backend that the code declares, and goes with kind source, or with no kind")
	}
	for _, name := range slices.Sorted(maps.Keys(s.BackendConfig)) {
		if !settingName().MatchString(name) {
			return refuseState("backend_config", "%q is not the name of a setting", text.Cut(name, 64))
		}
		if _, text := s.BackendConfig[name].(string); text && api.SecretSetting(name) {
			return refuseState("backend_config."+name, "a workspace never contains the value of a secret; name a secret that sets the environment variable which the backend reads")
		}
	}
	return nil
}
