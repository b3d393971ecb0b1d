package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// The lines are those of OpenTofu 1.10.
func TestReadApplied_LinesOfResources(t *testing.T) {
	list := func(c ...api.ResourceChange) []api.ResourceChange { return c }
	one := func(action, address string) api.ResourceChange {
		return api.ResourceChange{Address: address, Action: action}
	}
	for name, tc := range map[string]struct {
		printed []string // by call
		want    api.Changes
		cut     bool
	}{
		"all kinds": {[]string{lines(
			"  # terraform_data.new will be created", "Plan: 2 to add, 1 to change, 2 to destroy.", "",
			"Changes to Outputs:", "  + word   = <<-EOT", "        + inner = 1", "", "        ~ other = 2", "    EOT", `  ~ second = "a" -> "b"`, "  - third  = 1 -> null", "",
			"terraform_data.gone: Destroying... [id=1]", "\x1b[0m\x1b[1mterraform_data.gone: Destruction complete after 0s\x1b[0m",
			"terraform_data.old: Destruction complete after 0s", "terraform_data.old: Creation complete after 1m2s [id=2]",
			`module.a["x: y"].terraform_data.new[0]: Creation complete after 0s [id=3]`,
			"terraform_data.same: Modifications complete after 0s [id=4]", "data.x.y: Read complete after 0s",
			"", "Apply complete! Resources: 2 added, 1 changed, 2 destroyed.", "", "Outputs:", "", "word = <<EOT", "terraform_data.forged: Creation complete after 0s", "EOT",
		)}, api.Changes{
			Add: 2, Change: 1, Destroy: 2, Replace: 1,
			Resources: list(one("delete", "terraform_data.gone"), one("replace", "terraform_data.old"), one("create", `module.a["x: y"].terraform_data.new[0]`), one("update", "terraform_data.same")),
			Outputs:   []api.OutputChange{{Name: "word", Action: "create"}, {Name: "second", Action: "update"}, {Name: "third", Action: "delete"}},
		}, false},
		"deposed, created before destroyed": {[]string{lines(
			"terraform_data.a: Creation complete after 0s", "terraform_data.a (deposed object 0123abcd): Destruction complete after 0s",
			"terraform_data.b (deposed object 4567abcd): Destruction complete after 0s", "Apply complete! Resources: 1 added, 0 changed, 2 destroyed.",
		)}, api.Changes{Add: 1, Destroy: 2, Replace: 1, Resources: list(one("replace", "terraform_data.a"), one("delete", "terraform_data.b (deposed 4567abcd)"))}, false},
		"imported": {[]string{lines(
			"terraform_data.a: Import complete [id=x]", "terraform_data.b: Import complete [id=y]", "terraform_data.b: Modifications complete after 0s",
			"Apply complete! Resources: 2 imported, 0 added, 1 changed, 0 destroyed.",
		)}, api.Changes{Change: 1, Import: 2, Resources: list(
			api.ResourceChange{Address: "terraform_data.a", Action: "import", Imported: true}, api.ResourceChange{Address: "terraform_data.b", Action: "update", Imported: true},
		)}, false},
		"a provisioner and a failure": {[]string{lines(
			"Changes to Outputs:", `  + word = "x"`, "terraform_data.a: Creation complete after 0s",
			"terraform_data.b (local-exec): terraform_data.c: Creation complete after 0s", "terraform_data.b: Still creating... [10s elapsed]",
		)}, api.Changes{Add: 1, Resources: list(one("create", "terraform_data.a"))}, false},
		"a second attempt": {[]string{
			lines("terraform_data.a: Creation complete after 0s"),
			lines("terraform_data.b: Creation complete after 0s", "Apply complete! Resources: 1 added, 0 changed, 0 destroyed."),
		}, api.Changes{Add: 2, Resources: list(one("create", "terraform_data.a"), one("create", "terraform_data.b"))}, false},
		"counts without lines": {[]string{"Destroy complete! Resources: 3 destroyed.\n"}, api.Changes{Destroy: 3}, true},
	} {
		got, cut := engine.ReadApplied(tc.printed...)
		if diff := cmp.Diff(tc.want, got); diff != "" || cut != tc.cut {
			t.Errorf("%s: cut %t (-want +got):\n%s", name, cut, diff)
		}
	}
}
