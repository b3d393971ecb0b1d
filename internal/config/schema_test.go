package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type schema struct {
	Properties map[string]struct {
		Description string
		Type        string
		AnyOf       []any
		Enum        []string
		Default     any
	}
}

// D4: every key that acts has its form, its meaning and its default.
func TestSchema_HasEveryKeyAsItIs(t *testing.T) {
	text, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var got schema
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal([]byte(everything+onECS[strings.Index(onECS, "relay_url"):]+"oidc_token_file: /t\norganization_name: a\nrunner_pool_id: p\ntoken_expiration: 2h\nlisten: x:1\nprivate_issuers: [x]\n"), &file); err != nil {
		t.Fatal(err)
	}
	keys := append(config.Keys(config.Agent), config.Keys(config.Up)...)
	for _, key := range keys {
		p, ok := got.Properties[key]
		if !ok || p.Description == "" {
			t.Errorf("%s: not there, or without a description: %+v", key, p)
		}
		want := map[string]string{"int": "integer", "float64": "number", "bool": "boolean", "string": "string", "[]interface {}": ""}[fmt.Sprintf("%T", file[key])]
		if p.Type != want || (want == "") != (len(p.AnyOf) == 2) {
			t.Errorf("%s: got type %q, want %q as in %v", key, p.Type, want, file[key])
		}
		if len(p.Enum) > 0 && !slices.Contains(p.Enum, fmt.Sprint(file[key])) {
			t.Errorf("%s: %v is not among %v", key, file[key], p.Enum)
		}
		if p.Default == nil {
			continue
		}
		use := config.Agent
		if slices.Contains(config.Keys(config.Up), key) {
			use = config.Up
		}
		_, err := config.Load(use, config.Sources{File: write(t, "dayfly.yaml", fmt.Sprintf("%s: %v\n", key, p.Default))})
		if err != nil && strings.Contains(err.Error(), key+": want") {
			t.Errorf("%s: its default is refused: %v", key, err)
		}
	}
	for key := range got.Properties {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is not a key", key)
		}
	}
}

func TestRender_WhatItWritesIsRead(t *testing.T) {
	given := map[string]string{
		"token": "dfp_x", "service_url": "https://x.example.com/", "working_directory": "/srv/a b: c", "concurrency": "4",
		"source_roots": "/srv/code" + string(os.PathListSeparator) + "/srv/more", "enabled_workflow_types": "deployment", "single_run": "true",
	}
	text, err := config.Render(config.Agent, "dayfly.yaml", given)
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(text), "\n"); first != "# yaml-language-server: $schema=https://x.example.com/schemas/agent.json" {
		t.Errorf("it begins with %q", first)
	}
	got, err := config.Load(config.Agent, config.Sources{File: write(t, "dayfly.yaml", string(text))})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Token, want.ServiceURL, want.WorkingDirectory, want.Concurrency = got.Token, "https://x.example.com", "/srv/a b: c", 4
	want.SourceRoots, want.EnabledWorkflowTypes, want.SingleRun = []string{"/srv/code", "/srv/more"}, []workflow.Type{workflow.Deployment}, true
	same(t, got.Config, want)
	if got.Token.Reveal() != "dfp_x" {
		t.Error("the token is another one")
	}
}

func TestRender_EveryMistakeIsSaidAtOnce(t *testing.T) {
	_, err := config.Render(config.Agent, filepath.Join("dir", "dayfly.yaml"), map[string]string{"service_url": "x", "concurrency": "many", "listen": "x:1"})
	wrong, ok := errors.AsType[workflow.Mistakes](err)
	if !ok || len(wrong) != 4 {
		t.Errorf("got %v, want four mistakes: the address, the number, the key of up, and no token", err)
	}
}
