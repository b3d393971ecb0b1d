package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/setup"
	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// command parses the arguments, runs the command that they name and returns the exit code.
func command(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	switch { // spellings that newcomers try
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		args = append([]string{"version"}, args[1:]...)
	}

	var g globals
	exited := -1
	parser, err := newParser(&g, needed(args[0]), stdout, stderr, func(code int) { exited = code })
	if err != nil {
		return cli.Report(stderr, fmt.Errorf("build the command line: %w", err))
	}
	if args[0] == completeCommand {
		a := &cli.App{Ctx: ctx, Getenv: getenv, Stdout: stdout}
		return cli.Report(io.Discard, complete(a, parser.Model.Node, args[1:])) //nolint:contextcheck // it is in app
	}
	parsed, err := parse(parser, args)
	if exited >= 0 { // help was asked for and printed
		return exited
	}
	if _, ours := errors.AsType[*cli.ExitError](err); ours { // help could not be printed
		return cli.Report(stderr, err)
	}
	if err != nil {
		if err = hint(parser.Model.Node, parsed, err); !strings.HasSuffix(err.Error(), "?") {
			err = fmt.Errorf("%w; see dayfly%s --help", err, understood(parsed))
		}
		return cli.Report(stderr, cli.Usage(err))
	}
	if command := parsed.Command(); command != "up" && command != "agent" { // these end in stages
		// The first signal ends the context; the second one ends the process, as if it were not caught.
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop)
	}

	a := &cli.App{Ctx: ctx, Getenv: getenv, Stdin: stdin, Stdout: stdout, Stderr: stderr, Output: g.Output, Parsed: parsed, Color: g.Color}
	if err := parsed.BindToProvider(sync.OnceValues(a.Connect)); err != nil {
		return cli.Report(stderr, fmt.Errorf("build the command line: %w", err))
	}
	return cli.Report(stderr, suggest(a, perform(a))) //nolint:contextcheck // it is in app
}

// needed are the commands that a line with this first word needs: the one that it names, or all of them. Reading the tags
// of all of them takes longer than a short command.
func needed(first string) []topLevel {
	for _, c := range commands {
		if first == c.name || c.alias != "" && first == c.alias {
			return []topLevel{c}
		}
	}
	return commands
}

func newParser(g *globals, some []topLevel, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	var options []kong.Option
	for _, c := range some {
		options = append(options, kong.DynamicCommand(c.name, c.help, c.group, c.make(), "aliases:"+strconv.Quote(c.alias)))
	}
	options = append(options,
		kong.Name("dayfly"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(exit), kong.Help(help), kong.PostBuild(withDefaults), kong.PostBuild(describeSettings), kong.PostBuild(describeSchemas),
		kong.KindMapper(reflect.Int, kong.MapperFunc(whole)),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{{Key: "ecs", Title: "With deploy target ecs"}, {Key: "serve", Title: "Serve"}, {Key: "work", Title: "Work"}, {Key: "admin", Title: "Administer"}}),
	)
	return kong.New(g, options...)
}

// withDefaults writes the defaults that other packages own into the flags that name them. kong.Vars would do that,
// too, but for each flag the parser would look for variables in each of them, which was almost half of its work.
func withDefaults(k *kong.Kong) error {
	rates := admission.DefaultRates()
	defaults := strings.NewReplacer(
		"${listen}", embedded.DefaultListen, "${token_rate}", strconv.Itoa(rates.Token),
		"${organization_rate}", strconv.Itoa(rates.Organization), "${failure_rate}", strconv.Itoa(rates.Failures),
	)
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			flag.Help, flag.Default = defaults.Replace(flag.Help), defaults.Replace(flag.Default)
		}
		return next(nil)
	})
}

// parse reads arguments. A flag that takes one value is refused when it is given twice: the first one
// was meant too. After a mistake, the context says how far the line was understood; it may be nil.
func parse(parser *kong.Kong, args []string) (*kong.Context, error) {
	parsed, err := parser.Parse(args)
	if mistake, ok := errors.AsType[*kong.ParseError](err); ok {
		return mistake.Context, err
	}
	if err != nil {
		return parsed, err
	}
	seen := map[*kong.Flag]bool{}
	for _, p := range parsed.Path {
		if p.Flag != nil && seen[p.Flag] && !p.Flag.IsCumulative() {
			return parsed, fmt.Errorf("--%s: is given twice; give it once", p.Flag.Name)
		}
		seen[p.Flag] = true
	}
	for f := range seen {
		if f == nil {
			continue
		}
		if err := checkGlobal(parsed.Selected(), f); err != nil {
			return parsed, err
		}
	}
	return parsed, nil
}

// whole reads a whole number. One that begins with a minus is not a flag.
func whole(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Pop()
	n, err := strconv.Atoi(token.String())
	if err != nil || token.IsEOL() {
		return fmt.Errorf("want a whole number, not %q", token)
	}
	target.SetInt(int64(n))
	return nil
}

// alias is how kong shows another name of a command.
var alias = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([a-z]+\)`) })

// fullName returns the words of a command, with a space before each.
func fullName(n *kong.Node) string {
	return strings.TrimPrefix(alias().ReplaceAllString(n.FullPath(), ""), "dayfly")
}

// understood returns the command as far as it was understood, with a space before it.
func understood(parsed *kong.Context) string {
	if parsed == nil || parsed.Selected() == nil {
		return ""
	}
	return fullName(parsed.Selected())
}

// describeSettings writes the help of the commands of settings.
func describeSettings(parser *kong.Kong) error {
	for _, group := range parser.Model.Children {
		k, ok := setup.CommandKind(group)
		if !ok {
			continue
		}
		for name, help := range map[string]string{"list": k.List, "show": k.Show, "delete": k.Delete} {
			leaf := childOf(group, name)
			leaf.Help = help + "."
			for _, arg := range leaf.Positional {
				arg.Help = "The " + k.Noun() + "."
			}
		}
	}
	return nil
}
