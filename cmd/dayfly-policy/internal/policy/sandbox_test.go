package policy_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
)

// What could see more than the plan and the package is refused by name, before anything is evaluated.
func TestEvaluate_RefusesWhatSeesMoreThanThePlan(t *testing.T) {
	for name, call := range map[string]string{
		"http.send":            `http.send({"method": "get", "url": "http://169.254.169.254/"})`,
		"net.lookup_ip_addr":   `net.lookup_ip_addr("example.com")`,
		"opa.runtime":          `opa.runtime()`,
		"rand.intn":            `rand.intn("x", 9)`,
		"uuid.rfc4122":         `uuid.rfc4122("x")`,
		"json.match_schema":    `json.match_schema({}, {"$ref": "file:///etc/passwd"})`,
		"json.verify_schema":   `json.verify_schema({"$ref": "file:///etc/passwd"})`,
		"io.jwt.decode_verify": `io.jwt.decode_verify("x", {})`,
	} {
		got := one(t, "package main\n\ndeny contains \"x\" if x := "+call+"\n")
		if !strings.Contains(got.Error, "main.rego:3: undefined function "+name+": policies do not have it") {
			t.Errorf("%s: got %+v", name, got)
		}
		dir := write(t, map[string]string{"a.rego": "package a\n\ndeny contains \"x\"\n", "a_test.rego": "package a\n\ntest_a if x := " + call + "\n"})
		if tests, err := policy.Test(t.Context(), dir, time.Minute); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s in a test: got %+v, %v", name, tests, err)
		}
	}
}

// A huge value is stopped while it grows, before it takes the machine.
func TestEvaluate_RefusesHugeValues(t *testing.T) {
	dir := write(t, map[string]string{"main.rego": "package main\n\nx := numbers.range(1, 3000000)\n\ndeny contains \"long\" if count(x) > 0\n"})
	got, err := policy.EvaluateIn(t.Context(), dir, []byte(`{"format_version": "1"}`), time.Minute, 64<<20)
	if err != nil || !strings.Contains(got.Error, "more than 64 MiB of memory") || len(got.Findings) > 0 {
		t.Errorf("got %.300v, %v", got, err)
	}
}

// A schema in an annotation is not looked at, so that nothing it refers to is fetched.
func TestEvaluate_FetchesNoSchema(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer server.Close()
	got := one(t, "# METADATA\n# scope: package\n# schemas:\n# - input: {\"$ref\": \""+server.URL+"/schema\"}\npackage main\n\ndeny contains input.format_version\n")
	if len(got.Findings) != 1 || got.Error != "" {
		t.Errorf("got %+v", got)
	}
	select {
	case path := <-asked:
		t.Errorf("it asked for %s", path)
	default:
	}
}

func TestEvaluate_SeesNothingOfItsEnvironment(t *testing.T) {
	t.Setenv("DAYFLY_TEST_SECRET", "s3cret")
	for _, source := range []string{
		"package main\n\ndeny contains json.marshal(data)\n",
		"package main\n\ndeny contains json.marshal(rego.metadata.chain())\n",
		"package main\n\ndeny contains sprintf(\"%v\", [input])\n",
	} {
		for _, f := range one(t, source).Findings {
			if strings.Contains(f.Message, "s3cret") {
				t.Errorf("%q: got %s", source, f.Message)
			}
		}
	}
}

// Nothing outside the directory is read, and nothing that belongs to the package is left out in silence.
func TestEvaluate_ReadsOnlyItsDirectory(t *testing.T) {
	const rules = "package main\n\ndeny contains data.x.secret\n"
	outside := write(t, map[string]string{"data.json": `{"secret": "s3cret"}`, "more.rego": "package main\n\ndeny contains \"outside\"\n"})
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"a link to a file": {func(dir string) error {
			return os.Symlink(filepath.Join(outside, "data.json"), filepath.Join(dir, "x", "data.json"))
		}, "x/data.json: is a symbolic link that leads nowhere or out of the package"},
		"a relative link": {func(dir string) error {
			return os.Symlink("../../"+filepath.Base(outside)+"/data.json", filepath.Join(dir, "x", "data.json"))
		}, "out of the package"},
		"a link to Rego": {func(dir string) error {
			return os.Symlink(filepath.Join(outside, "more.rego"), filepath.Join(dir, "more.rego"))
		}, "out of the package"},
		"a link to a directory":   {func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "y")) }, "out of the package"},
		"a link to one beside it": {func(dir string) error { return os.Symlink("x", filepath.Join(dir, "y")) }, "y: is a symbolic link to a directory, which is not followed"},
		"a link to nothing":       {func(dir string) error { return os.Symlink("nothing", filepath.Join(dir, "a.rego")) }, "leads nowhere"},
		"a link to itself":        {func(dir string) error { return os.Symlink("a.rego", filepath.Join(dir, "a.rego")) }, "leads nowhere"},
		"a pipe":                  {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "a.rego"), 0o644) }, "a.rego: is not a regular file"},
		"a link to a pipe": {func(dir string) error {
			return errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644), os.Symlink("pipe", filepath.Join(dir, "a.rego")))
		}, "a.rego: is not a regular file"},
		"a device": {func(dir string) error { return os.Symlink("/dev/zero", filepath.Join(dir, "a.json")) }, "out of the package"},
		"a socket": {listen, ".rego"},
		"a directory by that name": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "x", "data.json"), []byte(`{"secret": "own"}`), 0o600)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.rego": rules, "x/y.txt": "", "d.rego/z.txt": ""})
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			got := evaluate(t, dir)
			if c.want == "" {
				if got.Error != "" || len(got.Findings) != 1 || got.Findings[0].Message != "own" {
					t.Errorf("got %+v", got)
				}
				return
			}
			if !strings.Contains(got.Error, c.want) || len(got.Findings) > 0 || strings.Contains(got.Error, "s3cret") {
				t.Errorf("got %+v, want an error with %q", got, c.want)
			}
		})
	}
}

// listen leaves a socket there. The path of one is short, so it is made by a relative name.
func listen(dir string) error {
	root, err := os.MkdirTemp("", "s")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, "s"), Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	return os.Rename(filepath.Join(root, "s"), filepath.Join(dir, "a.rego"))
}

// A link within the package is as good as the file.
func TestEvaluate_FollowsLinksWithinThePackage(t *testing.T) {
	dir := write(t, map[string]string{"shared/rules.txt": "package main\n\ndeny contains data.limit\n", "shared/limit.txt": `{"limit": "low"}`})
	if err := errors.Join(os.Symlink("shared/rules.txt", filepath.Join(dir, "main.rego")), os.Symlink("shared/limit.txt", filepath.Join(dir, "limit.json"))); err != nil {
		t.Fatal(err)
	}
	if got := evaluate(t, dir); got.Error != "" || len(got.Findings) != 1 || got.Findings[0].Message != "low" {
		t.Errorf("got %+v", got)
	}
}

func TestEvaluate_PackagesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"bytes": {func(dir string) error {
			f, err := os.Create(filepath.Join(dir, "big.json"))
			if err != nil {
				return err
			}
			return errors.Join(f.Truncate(33<<20), f.Close())
		}, "more than 32 MiB"},
		"files": {func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "z.json"), []byte("{}"), 0o600); err != nil {
				return err
			}
			for i := range 5001 {
				if err := os.Link(filepath.Join(dir, "z.json"), filepath.Join(dir, "a"+strings.Repeat("x", i%100)+string(rune('a'+i/100%26))+string(rune('a'+i/2600))+".json")); err != nil {
					return err
				}
			}
			return nil
		}, "more than 5000 files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.rego": "package main\n\ndeny contains \"x\"\n"})
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			if got := evaluate(t, dir); !strings.Contains(got.Error, c.want) {
				t.Errorf("got %+v, want an error with %q", got, c.want)
			}
		})
	}
}

func TestEvaluate_DataThatCannotBeReadIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"JSON":               {map[string]string{"a.json": "{"}, "a.json: is not JSON"},
		"two of JSON":        {map[string]string{"a.json": `{"a": 1} {"a": 2}`}, "a.json: is not JSON"},
		"YAML":               {map[string]string{"a.yaml": "a: [\n"}, "a.yaml: is not YAML"},
		"two of YAML":        {map[string]string{"a.yml": "a: 1\n---\na: 2\n"}, "a.yml: is not YAML that can be read: it holds more than one document"},
		"YAML that grows":    {map[string]string{"a.yml": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\n"}, "excessive aliasing"},
		"deep JSON":          {map[string]string{"a.json": strings.Repeat("[", 1_000_000)}, "a.json: is not JSON"},
		"deep YAML":          {map[string]string{"a.yml": "a: " + strings.Repeat("[", 1_000_000)}, "a.yml: is not YAML"},
		"deep Rego":          {map[string]string{"a.rego": "package a\n\nx := " + strings.Repeat("[", 1_000_000)}, "a.rego:3: max parsing recursion depth exceeded"},
		"a list":             {map[string]string{"a.json": "[]"}, "a.json: want an object"},
		"given twice":        {map[string]string{"a.json": `{"a": {"b": 1}}`, "a/data.yaml": "b: 2\n"}, "data.a.b is given by another file too"},
		"given to a package": {map[string]string{"main/data.json": `{"deny": ["y"]}`}, "conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["main.rego"] = "package main\n\ndeny contains \"x\"\n"
			if got := evaluate(t, write(t, c.files)); !strings.Contains(got.Error, c.want) || len(got.Findings) > 0 {
				t.Errorf("got %+v, want an error with %q", got, c.want)
			}
		})
	}
}
