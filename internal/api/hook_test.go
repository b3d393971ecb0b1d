package api_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// The digests are part of the interface: pools have them in their configuration.
func TestHook_DigestIsOfWhatRuns(t *testing.T) {
	digest := func(s string) string { return api.Hook{Run: s}.Digest() }
	// printf 'tflint\ntrivy config .' | sha256sum
	want := "a85c40156b6c9ea863d2ba616a6d8f30549fa57237ddd3878c8dd11a3cc6a765"
	for _, same := range []string{"tflint\ntrivy config .", "tflint\r\ntrivy config .\r\n", "tflint \t\rtrivy config .\n\n"} {
		if got := digest(same); got != want {
			t.Errorf("%q has the digest %s", same, got)
		}
	}
	for _, other := range []string{" tflint\ntrivy config .", "tflint\n\ntrivy config .", "tflint; trivy config ."} {
		if digest(other) == want {
			t.Errorf("%q has the same digest", other)
		}
	}
	if got := (api.Hook{Run: "echo a\\ \r\nb\n"}).Script(); got != "echo a\\\nb" {
		t.Errorf("got %q: the digest is of another text than the one that runs", got)
	}
}

func TestCheckFilePath_StaysInTheCode(t *testing.T) {
	for path, fine := range map[string]bool{
		"backend.tf": true, "a/b.tf": true, ".tflint.hcl": true, "": false, ".": false, "..": false, "../a": false, "/a": false, "a/../b": false, "a//b": false,
		".git/config": false, "a/.GIT/config": false, ".terraform/x": false, "terraform.tfstate": false, "terraform.tfstate.d/a": false, "a\nb": false, "a\\b": false,
	} {
		if err := api.CheckFilePath(path); (err == nil) != fine {
			t.Errorf("%q: got %v", path, err)
		}
	}
}
