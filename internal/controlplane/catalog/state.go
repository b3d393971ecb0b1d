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
	secretSetting   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)secret|passw|token|credential|access_key|private_key|conn_str`)
	})
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
	refuse := func(field, format string, args ...any) error {
		return workflow.Invalid(strings.TrimSuffix("state."+field, "."), format, args...)
	}
	engine := api.EngineOf(w.Engine)
	if s.Kind != "" && engine.Places != nil && !slices.Contains(engine.Places, s.Kind) {
		return refuse("kind", "with engine %s, kind is %s: %s", w.Engine, strings.Join(engine.Places, " or "), engine.OwnState)
	}
	switch s.Kind {
	case "", api.StateSource, api.StateDirectory:
		if s.Bucket != "" || s.Region != "" || s.Endpoint != "" || s.KMSKeyARN != "" {
			return refuse("", "bucket, region, endpoint and kms_key_arn go with kind s3")
		}
	case api.StateS3:
		if s.Bucket == "" || s.Region == "" {
			return refuse("", "kind s3 needs a bucket and a region")
		}
		if s.Endpoint != "" {
			if u, err := url.Parse(s.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
				return refuse("endpoint", "the endpoint is an http or https address without credentials")
			}
		}
	default:
		return refuse("kind", "kind is source, directory or s3, not %q", text.Cut(s.Kind, 40))
	}
	if s.Default != "" || s.Key != "" && (before == nil || s.Key != before.Key) {
		return refuse("key", "key and default are set by the control plane; leave them out")
	}
	if engine.OwnState != "" && (s.Workspace != "" || len(s.BackendConfig) > 0) {
		return refuse("", "workspace and backend_config go with the engines terraform and tofu")
	}
	if s.Workspace != "" && w.Engine != api.EnginePulumi && !engineWorkspace().MatchString(s.Workspace) {
		return refuse("workspace", "an engine's workspace has 1 to 90 characters of A-Z, a-z, 0-9, ., _ and -; %q does not", text.Cut(s.Workspace, 100))
	}
	if len(s.BackendConfig) > 0 && s.Kind != "" && s.Kind != api.StateSource {
		return refuse("backend_config", "backend_config completes the backend that the code declares, and goes with kind source, or with no kind")
	}
	for _, name := range slices.Sorted(maps.Keys(s.BackendConfig)) {
		if !settingName().MatchString(name) {
			return refuse("backend_config", "%q is not the name of a setting", text.Cut(name, 64))
		}
		if _, text := s.BackendConfig[name].(string); text && secretSetting().MatchString(name) {
			return refuse("backend_config."+name, "a workspace never contains the value of a secret; name a secret that sets the environment variable which the backend reads")
		}
	}
	return nil
}
