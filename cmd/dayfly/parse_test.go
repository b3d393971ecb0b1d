package main

import (
	std "cmp"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/runs"
	"github.com/dayfly-dev/dayfly/internal/config"
)

// leaves are the commands that do something, of a parser of their own.
func leaves(t *testing.T) (*kong.Kong, []*kong.Node) {
	t.Helper()
	parser, err := newParser(&globals{}, commands, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return parser, parser.Model.Leaves(false)
}

// written is a flag as somebody would write it for the nth time.
func written(f *kong.Flag, n int) []string {
	name := "--" + f.Name
	switch {
	case f.IsBool():
		return []string{name}
	case f.Enum != "":
		return []string{name, f.EnumSlice()[n]}
	}
	kind := f.Target.Type()
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	switch {
	case kind == reflect.TypeFor[time.Duration]():
		return []string{name, "1s"}
	case kind.Kind() == reflect.Int:
		return []string{name, "1"}
	case kind.Kind() == reflect.Map:
		return []string{name, []string{"first=x", "second=x"}[n]}
	case kind.Name() == "logQuota":
		return []string{name, "1MiB"}
	}
	return []string{name, []string{"first", "second"}[n]}
}

// line is the least that a command is called with.
func line(leaf *kong.Node, without *kong.Flag) []string {
	var args []string
	for n := leaf; n.Parent != nil; n = n.Parent {
		args = append([]string{n.Name}, args...)
	}
	for _, p := range leaf.Positional {
		if p.Required {
			args = append(args, std.Or(p.EnumSlice()[0], ".")) // a dot can be a directory too
		}
	}
	for _, f := range leaf.Flags {
		if f.Required && f != without {
			args = append(args, written(f, 0)...)
		}
	}
	return args
}

// A script that says --op preview --op destroy must not destroy.
func TestParse_ARepeatedFlagAddsUpOrIsRefused(t *testing.T) {
	parser, commands := leaves(t)
	looked := 0
	for i := range commands {
		for group, flags := range commands[i].AllFlags(false) {
			for j := range flags {
				leaf := commands[i]
				f := leaf.AllFlags(false)[group][j]
				if f.Name == "help" {
					continue
				}
				looked++
				args := append(line(leaf, f), append(written(f, 0), written(f, 1)...)...)
				_, err := parse(parser, args)
				switch text := strings.Join(args, " "); {
				case f.IsCumulative():
					if err != nil || f.Target.Len() != 2 {
						t.Errorf("%s: got %v, %v, want both", text, f.Target, err)
					}
				case err == nil || !strings.Contains(err.Error(), "--"+f.Name+": is given twice"):
					t.Errorf("%s: got %v, want a refusal that names the flag", text, err)
				}
				if len(f.Xor) > 0 { // a parser keeps the values that it has read
					parser, commands = leaves(t)
				}
			}
		}
	}
	if looked < 60 {
		t.Errorf("only %d flags were looked at", looked)
	}
}

func TestParse_TheSameFlagUnderAnotherNameIsTheSame(t *testing.T) {
	for _, args := range [][]string{
		{"run", "x", "-o", "json", "--output", "table"},
		{"up", "--data", "/a", "--working-directory", "/b"},
		{"pool", "update", "x", "--disabled", "--no-disabled"},
		{"workflow", "logs", "x", "-ff"},
	} {
		parser, _ := leaves(t)
		if _, err := parse(parser, args); err == nil || !strings.Contains(err.Error(), "is given twice") {
			t.Errorf("%v: got %v, want a refusal", args, err)
		}
	}
}

func TestParse_ANumberMayBeginWithAMinus(t *testing.T) {
	for value, want := range map[string]string{"-5": "", "5": "", "--follow": "want a whole number", "much": "want a whole number", "": "want a whole number"} {
		var run runs.RunCommand
		parser, err := newParser(&globals{}, []topLevel{{name: "run", make: func() any { return &run }}}, io.Discard, io.Discard, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		_, err = parse(parser, []string{"run", "x", "--priority", value})
		if want == "" {
			if err != nil || *run.Priority != map[string]int{"-5": -5, "5": 5}[value] {
				t.Errorf("%q: got %d, %v", value, *run.Priority, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", value, err, want)
		}
	}
}

// A flag of a serving command sets the key of its name or of its tag: none is forgotten, and none sets another.
func TestParse_EverySettingHasItsFlag(t *testing.T) {
	for use, without := range map[config.Use][]string{
		config.Agent: {"token"}, // everybody on the machine could read it
		config.Up: { // with deploy target ecs, which is for agents
			"relay_url", "relay_listen", "relay_cert", "relay_key", "relay_insecure", "cluster", "task_definition", "container", "subnets", "security_groups", "assign_public_ip", "spot", "launch_rate",
		},
	} {
		var got []string
		_, commands := leaves(t)
		i := slices.IndexFunc(commands, func(n *kong.Node) bool { return n.Name == string(use) })
		for group, flags := range commands[i].AllFlags(false) {
			for j := range flags {
				parser, again := leaves(t) // a parser keeps the values that it has read
				f := again[i].AllFlags(false)[group][j]
				if f.Name == "help" {
					continue
				}
				args := append([]string{string(use)}, written(f, 0)...)
				if f.IsCumulative() {
					args = append(args, written(f, 1)...)
				}
				parsed, err := parse(parser, args)
				if err != nil {
					if f.Name != "output" && f.Name != "color" {
						t.Errorf("%v: %v", args, err)
					}
					continue
				}
				for key, flag := range (&cli.App{Parsed: parsed}).Flags(use) {
					got = append(got, key)
					want := map[string]string{"true": "true", "first": "first"}[flag.Value]
					switch {
					case f.IsCumulative() && f.Tag.Type == "path":
						want = strings.Join([]string{abs(t, "first"), abs(t, "second")}, string(os.PathListSeparator))
					case f.IsCumulative():
						want = "first,second"
					case f.Tag.Type == "path":
						want = abs(t, "first")
					}
					if flag.Name != f.Name || flag.Value != want {
						t.Errorf("--%s sets %s to %q by --%s, want %q", f.Name, key, flag.Value, flag.Name, want)
					}
				}
			}
		}
		want := slices.DeleteFunc(config.Keys(use), func(key string) bool { return slices.Contains(without, key) })
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("keys that the flags of %s set (-want +got):\n%s", use, diff)
		}
	}
}

func abs(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNeeded_OneCommandHelpsAsAmongAll(t *testing.T) {
	for _, c := range commands {
		for _, first := range []string{c.name, c.alias} {
			if first == "" {
				continue
			}
			if got := needed(first); len(got) != 1 || got[0].name != c.name {
				t.Fatalf("%s needs %d commands, want itself", first, len(got))
			}
			var help [2]strings.Builder
			for i, some := range [][]topLevel{needed(first), commands} {
				parser, err := newParser(&globals{}, some, &help[i], io.Discard, func(int) {})
				if err != nil {
					t.Fatal(err)
				}
				_, _ = parse(parser, []string{first, "--help"}) // it goes on after the help, and finds nothing else
			}
			if d := cmp.Diff(help[1].String(), help[0].String()); d != "" || help[0].Len() == 0 {
				t.Errorf("%s (-among all +alone):\n%s", first, d)
			}
		}
	}
}
