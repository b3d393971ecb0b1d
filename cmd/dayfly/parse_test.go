package main

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// leaves are the commands that do something, of a parser of their own.
func leaves(t *testing.T) (*kong.Kong, []*kong.Node) {
	t.Helper()
	parser, err := newParser(&grammar{}, io.Discard, io.Discard, func(int) {})
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
	case kind == reflect.TypeFor[logQuota]():
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
			args = append(args, "x")
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
func TestParse_EveryFlagThatIsGivenTwiceAddsUpOrIsRefused(t *testing.T) {
	_, commands := leaves(t)
	looked := 0
	for i := range commands {
		for group, flags := range commands[i].AllFlags(false) {
			for j := range flags {
				parser, again := leaves(t) // a parser keeps what it has read
				leaf := again[i]
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
		var g grammar
		parser, err := newParser(&g, io.Discard, io.Discard, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		_, err = parse(parser, []string{"run", "x", "--priority", value})
		if want == "" {
			if err != nil || g.Run.Priority != map[string]int{"-5": -5, "5": 5}[value] {
				t.Errorf("%q: got %d, %v", value, g.Run.Priority, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", value, err, want)
		}
	}
}
