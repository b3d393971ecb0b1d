package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R10: a scan says what the state has, without a value, also where the list of it cannot be kept.
func TestInventory_OfAScan(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": app + "module \"inner\" {\n  source = \"./inner\"\n}\n", "inner/main.tf": "resource \"terraform_data\" \"deep\" { count = 2 }\n"}
		first := job(t, name, workflow.Update, files)
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		for _, keepErr := range []error{nil, errors.New("no place for it")} {
			h := newHost()
			h.keepErr = keepErr
			out, err := engine.Run(t.Context(), h, again(t, first, "", files))
			if err != nil {
				t.Fatalf("%v\n%s", err, h.text())
			}
			if diff := cmp.Diff(&api.Inventory{Resources: 5, Types: []api.InventoryCount{{Type: "terraform_data", Count: 5}}}, out.Inventory); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
			list := string(h.kept["file files/dayfly-inventory.json"])
			if keepErr != nil {
				if !strings.Contains(h.text(), "the list of the resources was not kept: no place for it") {
					t.Errorf("the log does not say why there is no list:\n%s", h.text())
				}
				continue
			}
			for _, want := range []string{`"address": "module.inner.terraform_data.deep[1]"`, `"module": "module.inner"`, `"provider": "terraform.io/builtin/terraform"`, `terraform_data.many[\"a\"]`} {
				if !strings.Contains(list, want) {
					t.Errorf("the list has no %s: %s", want, list)
				}
			}
			if strings.Contains(list, "planted") || strings.Contains(list, "first") {
				t.Errorf("the list has a value: %s", list)
			}
		}
		if out, err := engine.Run(t.Context(), newHost(), again(t, first, workflow.Preview, files)); err != nil || out.Inventory != nil {
			t.Errorf("a preview has the inventory %v, %v", out.Inventory, err)
		}
	})
}

// What was destroyed outside the code is in the state until something writes it; data sources are not managed.
func TestInventory_WhatIsGoneIsStillInTheState(t *testing.T) {
	got, err := engine.InventoryOf([]byte(`{"format_version":"1.2",
		"prior_state":{"format_version":"1.0","values":{"root_module":{
			"resources":[{"address":"a_b.one","mode":"managed","type":"a_b"},{"address":"data.a_b.two","mode":"data","type":"a_b"}],
			"child_modules":[{"address":"module.m","resources":[{"address":"module.m.c_d.x","mode":"managed","type":"c_d"}]}]}}},
		"resource_drift":[{"address":"module.m.c_d.gone","mode":"managed","type":"c_d","change":{"actions":["delete"]}},
			{"address":"a_b.one","mode":"managed","type":"a_b","change":{"actions":["update"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &api.Inventory{Resources: 3, Types: []api.InventoryCount{{Type: "c_d", Count: 2}, {Type: "a_b", Count: 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
