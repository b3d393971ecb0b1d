package env_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/env"
)

func TestValid_NamesThatAShellCanSet(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "_": true, "TF_VAR_a9": true, strings.Repeat("x", 128): true,
		"": false, "9A": false, "A-B": false, "A.B": false, "A B": false, "A=B": false, "A\n": false, "A\x00": false, "É": false,
		"A\xff": false, strings.Repeat("x", 129): false,
	} {
		if got := env.Valid(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

func TestReserved_OursAndTheLoaders(t *testing.T) {
	for name, want := range map[string][2]bool{
		"DAYFLY_JOB": {true, true}, "DAYFLY_": {true, true}, "LD_PRELOAD": {false, true},
		"DAYFLY": {}, "dayfly_job": {}, "MY_LD_PRELOAD": {}, "PATH": {},
	} {
		if got := [2]bool{env.Ours(name), env.Reserved(name)}; got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}
