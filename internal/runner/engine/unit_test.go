package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

const unitFile = `
include "root" {
  path = find_in_parent_folders("root.hcl")
}
include "env" { path = "${dirname(find_in_parent_folders("x/root.hcl"))}/_env/app.hcl" }
locals {
  account = read_terragrunt_config(find_in_parent_folders("account.hcl", "none"))
  common  = read_terragrunt_config("../common.hcl")
}
terraform {
  # source = "../commented"
  source = "${get_repo_root()}/modules//app"
}
dependency "net" { config_path = "../net" }
dependencies {
  paths = ["../a", "${get_terragrunt_dir()}/../b"]
}
remote_state {
  backend = "s3"
  config  = { key = "${path_relative_to_include()}/x" }
}
unit "made" {
  source = "../units/made"
}
inputs = { source = "../no", config_path = find_in_parent_folders() }
`

func TestReadUnit_PathsThatCanBeReadWithoutTerragrunt(t *testing.T) {
	root, env := engine.UnitPath{Above: "root.hcl", Path: "root.hcl"}, engine.UnitPath{Above: "x/root.hcl", Path: "x/_env/app.hcl"}
	want := engine.Unit{
		Sourced: true, Source: &engine.UnitPath{Repo: true, Path: "/modules//app"},
		Includes: []engine.UnitPath{root, env},
		Reads: []engine.UnitPath{
			root, root, env, {Above: "x/root.hcl", Path: "x/root.hcl"},
			{Above: "account.hcl", Path: "account.hcl", Optional: true}, {Above: "account.hcl", Path: "account.hcl", Optional: true},
			{Path: "../common.hcl"}, {Above: "terragrunt.hcl", Path: "terragrunt.hcl"},
		},
		Needs: []engine.UnitPath{{Path: "../net"}, {Path: "../a"}, {Path: "./../b"}},
		Calls: []engine.UnitPath{{Path: "../units/made"}}, Backend: "s3",
	}
	if diff := cmp.Diff(want, engine.ReadUnit([]byte(unitFile), "terragrunt.hcl")); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
	got := engine.ReadUnit([]byte("terraform {\n  source = \"git::https://example.com/m.git\"\n}\n{"), "terragrunt.hcl")
	if !got.Sourced || got.Source != nil || !got.Unsure {
		t.Errorf("a remote module in a broken file: got %+v", got)
	}
}

func TestReadUnit_AChoiceOfSources(t *testing.T) {
	for source, want := range map[string]*engine.UnitPath{
		`"${get_env("ENV") == "prod" ? "git::https://example.com/m.git//app?ref=v1" : "../../modules//app"}"`: {Path: "../../modules//app"},
		`local.released ? "git::https://example.com/m.git" : "./app"`:                                         {Path: "./app"},
		`"${local.base}//app"`:              nil,
		`"../modules//${local.app}"`:        nil,
		"local.app\n  extra = \"../other\"": nil,
	} {
		got := engine.ReadUnit([]byte("terraform {\n  source = "+source+"\n}\n"), "terragrunt.hcl")
		if diff := cmp.Diff(want, got.Source); diff != "" || !got.Sourced {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
	}
}

func FuzzReadUnit(f *testing.F) {
	f.Add([]byte(unitFile))
	f.Add([]byte("include \"x\" { path = \"${find_in_parent_folders("))
	f.Add([]byte("dependencies { paths = [\n\"a\",,"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if u := engine.ReadUnit(data, "terragrunt.hcl"); u.Source != nil && (!u.Sourced || !u.Source.Local()) {
			t.Errorf("got %+v", u)
		}
	})
}
