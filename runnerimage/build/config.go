package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// The forms of a list of contents.
const (
	spdx      = "spdx-json"
	cyclonedx = "cyclonedx-json"
)

// config are the values of the variables; docs/configuration.md lists them.
type config struct {
	version   string
	revision  string
	image     name.Tag
	base      string // empty: nothing
	extra     string
	authority []byte // certificates in PEM
	providers string
	engine    string // empty: any that is found
	arch      string
	require   []string
	output    string
	push      bool
	sbom      string
	signKey   string // a reference
	created   time.Time
	secret    []string // variables for the program that signs alone
}

var (
	notInTag  = regexp.MustCompile(`[^A-Za-z0-9._-]`)
	reference = regexp.MustCompile(`^[a-z]+://[A-Za-z0-9_./:@-]*$`)
)

// configure reads the variables and reports every mistake at once.
func configure(getenv func(string) string) (config, error) {
	var mistakes []error
	refuse := func(field, format string, args ...any) {
		mistakes = append(mistakes, workflow.Refuse(workflow.ErrInvalid, field, format, args...))
	}
	c := config{
		version: cmp.Or(getenv("VERSION"), "dev"), revision: getenv("REVISION"), base: getenv("BASE"), extra: getenv("EXTRA"),
		providers: getenv("PROVIDERS"), engine: getenv("ENGINE"), arch: cmp.Or(getenv("GOARCH"), runtime.GOARCH),
		require: strings.Fields(getenv("REQUIRE")), output: getenv("OUTPUT"), push: getenv("PUSH") == "1",
		sbom: getenv("SBOM"), signKey: getenv("SIGN_KEY"), created: time.Unix(0, 0).UTC(), secret: []string{"COSIGN_PASSWORD"},
	}
	if c.base == "scratch" {
		c.base = ""
	}
	var err error
	if c.image, err = name.NewTag(cmp.Or(getenv("IMAGE"), "dayfly-runner:"+notInTag.ReplaceAllString(c.version, "-"))); err != nil {
		refuse("IMAGE", "%v", err)
	}
	if c.arch != "amd64" && c.arch != "arm64" {
		refuse("GOARCH", "tasks run on amd64 or arm64, not on %s", c.arch)
	}
	if !slices.Contains([]string{"", "terraform", "tofu"}, c.engine) {
		refuse("ENGINE", "%s is not an engine: use terraform or tofu, or leave it out", c.engine)
	}
	if info, err := os.Stat(c.extra); c.extra != "" && (err != nil || !info.IsDir()) {
		refuse("EXTRA", "%s is not a directory", c.extra)
	}
	if file := getenv("EXTRA_CA"); file != "" {
		b, err := os.ReadFile(file)
		found := layers.Certificates(b)
		if err != nil || len(found) == 0 {
			refuse("EXTRA_CA", "%s is not a file with certificates in PEM", file)
		}
		c.authority = layers.PEM(found)
	}
	if push := getenv("PUSH"); push != "" && push != "0" && push != "1" {
		refuse("PUSH", "is %s; use 1 to push the image to the registry that IMAGE names", push)
	}
	if c.push && !strings.Contains(getenv("IMAGE"), "/") {
		refuse("IMAGE", "names no registry to push to: write IMAGE=REGISTRY/NAME:TAG")
	}
	if !slices.Contains([]string{"", spdx, cyclonedx}, c.sbom) {
		refuse("SBOM", "%s is not a form of it: use %s or %s", c.sbom, spdx, cyclonedx)
	}
	if seconds := getenv("SOURCE_DATE_EPOCH"); seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			refuse("SOURCE_DATE_EPOCH", "%s is not a number of seconds", seconds)
		}
		c.created = time.Unix(n, 0).UTC()
	}
	if variable, ok := strings.CutPrefix(c.signKey, "env://"); ok {
		c.secret = append(c.secret, variable)
	}
	// The refused value may be the key itself, so it is not repeated.
	if _, err := os.Stat(filepath.Clean(c.signKey)); c.signKey != "" && err != nil && !reference.MatchString(c.signKey) {
		refuse("SIGN_KEY", "names no key: give the path of a file, env://NAME, or awskms:///ARN")
	}
	if c.signKey != "" && !c.push {
		refuse("SIGN_KEY", "a signature is kept beside the image in a registry: set PUSH=1, and IMAGE to a name there")
	}
	return c, errors.Join(mistakes...)
}

// environment is the environment of programs that need no secrets.
func (c config) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		key, _, _ := strings.Cut(variable, "=")
		return slices.Contains(c.secret, key)
	})
}
