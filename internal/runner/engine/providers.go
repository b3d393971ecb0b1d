package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// providers are the providers that a run has from the cache and the mirror.
type providers struct {
	looked bool // shareProviders has decided
	env    []string
	found  map[string]providercache.Package // by source

	mirrored int // from the pool's mirror
}

// shareProviders returns the environment of an init that takes providers from the cache and from the mirror of the pool,
// as far as the run's dependency lock file names them, and all others as ever. The engine compares each of them with the
// lock file, at init and before each command.
func (t *terraform) shareProviders(ctx context.Context) (env []string, err error) {
	if t.providers.looked || t.j.Providers == "" && t.j.Mirror == "" {
		return t.providers.env, nil
	}
	t.providers.looked = true
	store := "cache"
	if t.j.Providers == "" {
		store = "mirror"
	}
	if why := t.whyNotShared(); why != "" {
		t.h.Logf("the %s of providers is not used: %s", store, why)
		return nil, nil
	}
	locked, err := t.locked()
	if err != nil {
		return nil, err
	}
	if len(locked) == 0 {
		t.h.Logf("the %s of providers has only providers of a lock file, and there is no %s in the root module: commit the file that %s providers lock -platform=%s writes",
			store, lockFileName, t.j.Spec.Engine, providercache.Platform())
		return nil, nil
	}
	links, err := t.linkProviders(locked)
	if err != nil {
		return nil, err
	}
	mirrored := t.inMirror(ctx, locked)
	t.providers.mirrored = len(mirrored)
	if len(t.providers.found)+len(mirrored) == 0 {
		return nil, nil
	}
	name := newName("cli-", ".tfrc")
	if err := t.temp.write(name, installation(links, slices.Sorted(maps.Keys(t.providers.found)), t.j.Mirror, mirrored)); err != nil {
		return nil, err
	}
	t.providers.env = []string{configVariable + "=" + t.temp.join(name)}
	return t.providers.env, nil
}

// inMirror lists the providers that the cache lacks and the mirror has.
func (t *terraform) inMirror(ctx context.Context, locked []lockedProvider) (mirrored []string) {
	for _, p := range locked {
		_, found := t.providers.found[p.source]
		// Both engines take a host with a port for the scheme of an address, so a mirror cannot have its providers.
		if !found && t.j.Mirror != "" && !strings.Contains(p.source, ":") && t.j.Mirrored(ctx, p.source, p.version) {
			mirrored = append(mirrored, p.source)
		}
	}
	return mirrored
}

// linkProviders makes a filesystem mirror for the run, of those providers of the lock file that the cache has, and
// returns its directory. The mirror consists of links: through them, the engine's user cannot write to the cache.
func (t *terraform) linkProviders(locked []lockedProvider) (mirror string, err error) {
	t.providers.found = map[string]providercache.Package{}
	if t.j.Providers == "" {
		return "", nil
	}
	if why := unsafeVersion(t.j.Spec.Engine, t.bin.version); why != "" {
		t.h.Logf("the cache of providers is not used: %s", why)
		return "", nil
	}
	name, unknown := newName("mirror-", ""), 0
	for _, p := range locked {
		if !slices.ContainsFunc(p.hashes, func(hash string) bool { return strings.HasPrefix(hash, "h1:") }) {
			unknown++
			continue
		}
		found, ok := providercache.Find(t.j.Providers, providercache.Platform(), p.hashes)
		if !ok {
			continue
		}
		if err := t.temp.linkTo(path.Join(name, p.source, p.version, providercache.Platform()), found.Path); err != nil {
			return "", err
		}
		t.providers.found[p.source] = found
	}
	if unknown > 0 {
		t.h.Logf("the cache of providers has only providers that a lock file names by their h1 hash, and %s has none of %s: commit the file that %s providers lock -platform=%s writes",
			lockFileName, text.Count(unknown, "provider"), t.j.Spec.Engine, providercache.Platform())
	}
	return t.temp.join(name), nil
}

// installation is the configuration of an engine that installs some providers from a directory of links, some from a
// network mirror, and all others as ever.
func installation(links string, linked []string, mirror string, mirrored []string) []byte {
	list := func(sources []string) string {
		quoted := make([]string, len(sources))
		for i, source := range sources {
			quoted[i] = strconv.Quote(source)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var b strings.Builder
	b.WriteString("provider_installation {\n")
	if len(linked) > 0 {
		_, _ = fmt.Fprintf(&b, "  filesystem_mirror {\n    path    = %q\n    include = %s\n  }\n", links, list(linked))
	}
	if len(mirrored) > 0 {
		_, _ = fmt.Fprintf(&b, "  network_mirror {\n    url     = %q\n    include = %s\n  }\n", mirror, list(mirrored))
	}
	_, _ = fmt.Fprintf(&b, "  direct {\n    exclude = %s\n  }\n}\n", list(slices.Concat(linked, mirrored)))
	return []byte(b.String())
}

// locked reads the root module's dependency lock file as it is now.
func (t *terraform) locked() ([]lockedProvider, error) {
	raw, err := t.root.read(lockFileName, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", lockFileName, err)
	}
	return readLockFile(raw), nil
}

// handOverProviders says, after init, how many providers came from the cache, and hands over those that the cache
// lacks.
func (t *terraform) handOverProviders() string {
	mirrored := ""
	if t.providers.mirrored > 0 {
		mirrored = fmt.Sprintf("; %s from the pool's mirror", text.Count(t.providers.mirrored, "provider"))
	}
	if t.j.Providers == "" || t.j.HandOverProviders == nil {
		return mirrored
	}
	locked, err := t.locked()
	if err != nil {
		return mirrored // the engine could read it; only the cache needs it here
	}
	var used []string
	var bytes int64
	installed := ""
	for _, p := range locked {
		info, err := t.data.root.Lstat(path.Join(installedName, p.source, p.version, providercache.Platform()))
		found, fromCache := t.providers.found[p.source]
		switch {
		case err != nil:
		case fromCache && info.Mode()&fs.ModeSymlink != 0:
			used, bytes = append(used, found.Hash), bytes+found.Bytes
		case info.IsDir():
			if _, there := providercache.Find(t.j.Providers, providercache.Platform(), p.hashes); !there {
				installed = t.data.join(installedName)
			}
		}
	}
	t.j.HandOverProviders(installed, used)
	if len(used) == 0 {
		return mirrored
	}
	return mirrored + fmt.Sprintf("; %d of %s from the cache, which spared a download of %.1f MiB unpacked", len(used), text.Count(len(locked), "provider"), float64(bytes)/(1<<20))
}

const (
	configVariable = "TF_CLI_CONFIG_FILE"
	installedName  = "providers" // in the engine's data directory
)

// whyNotShared says why neither cache nor mirror is used; empty means that they may be. A configuration of providers
// on the machine or in the workspace wins, because the engine takes only one.
func (t *terraform) whyNotShared() string {
	getenv := t.j.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	for _, flag := range t.flags(stepInit) {
		if flag == "-upgrade" || strings.HasPrefix(flag, "-plugin-dir") {
			return "the workspace's flags of init have " + flag
		}
	}
	for _, name := range []string{configVariable, "TERRAFORM_CONFIG", "TF_PLUGIN_CACHE_DIR", "TF_CLI_ARGS", "TF_CLI_ARGS_init"} {
		if getenv(name) != "" {
			return "the environment has " + name
		}
	}
	for _, place := range places(t.j.Root, t.j.Spec.Engine, getenv) {
		if isThere(place) {
			return place + " configures the engine or has providers"
		}
	}
	if f, err := os.Open(t.bin.path); err == nil { //nolint:gosec // G703: it is the program that is run
		is := providercache.PlatformOf(f)
		_ = f.Close() // it is only read
		if is != "" && is != providercache.Platform() {
			return fmt.Sprintf("%s is a program for %s", t.bin.path, is)
		}
	}
	if strings.ContainsAny(t.temp.path, "\"\\$%\n") {
		return "the path of the work directory has one of the characters \" \\ $ %"
	}
	return ""
}

// places are the files and directories in which an engine looks for its configuration, or for providers, by itself.
func places(root, engine string, getenv func(string) string) []string {
	home := getenv("HOME")
	in := func(variable, otherwise string) string {
		if dir := getenv(variable); dir != "" {
			return dir
		}
		return otherwise
	}
	out := []string{filepath.Join(root, "terraform.d", "plugins")}
	for _, name := range []string{".terraformrc", ".tofurc", ".terraform.d"} {
		out = append(out, filepath.Join(home, name))
	}
	data := append([]string{in("XDG_DATA_HOME", filepath.Join(home, ".local", "share"))}, filepath.SplitList(in("XDG_DATA_DIRS", "/usr/local/share:/usr/share"))...)
	for _, dir := range data {
		out = append(out, filepath.Join(dir, "terraform", "plugins"))
	}
	if engine == api.EngineTofu {
		for _, variable := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
			if dir := getenv(variable); dir != "" {
				out = append(out, filepath.Join(dir, "opentofu"))
			}
		}
	}
	return out
}

// isThere says whether there is a file, or a directory with something in it.
func isThere(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil
	}
	f, err := os.Open(path) //nolint:gosec // G304: one of a few names
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(1)
	return len(names) > 0
}

// unsafeVersion says why a version of an engine gets no links to the cache. If a link lies where OpenTofu installs a
// provider, these versions write through it (GHSA-wcmj-x466-56mm). It is not documented which pre-releases of later
// versions precede the fix, so those of 1.12.0 count as affected.
func unsafeVersion(engine string, v *version.Version) string {
	if engine != api.EngineTofu || v == nil {
		return ""
	}
	from := func(of string) bool { return !v.LessThan(version.Must(version.NewVersion(of))) }
	fixed := from("1.10.10") && v.Core().LessThan(version.Must(version.NewVersion("1.11.0"))) || from("1.11.7") && v.Core().LessThan(version.Must(version.NewVersion("1.12.0"))) || from("1.12.0")
	if fixed {
		return ""
	}
	return fmt.Sprintf("OpenTofu %s follows links where it installs providers (GHSA-wcmj-x466-56mm): take 1.10.10, 1.11.7 or a later release", v)
}
