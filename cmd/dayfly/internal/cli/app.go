// Package cli has the parts that all commands of dayfly share: where they read and write, which control plane they
// talk to, how results, questions and refusals look, and the exit codes. The packages of commands import it, never
// one another.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// DefaultOrganization is the organization of a command that names none.
const DefaultOrganization = "default"

// App has the streams, the environment and the global flags of a command.
type App struct {
	Ctx    context.Context //nolint:containedctx // a command is one call; kong binds values, not parameters
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Output string
	Parsed *kong.Context

	Detailed bool // whether the exit code reports changes of a workflow that is followed

	Color  string
	Screen io.Writer // the standard output that Stdout is copied to; nil: Stdout is not buffered
	Over   bool      // the result is final
}

// Environ lists the environment, for settings, where unknown names are mistakes.
func (a *App) Environ() []string {
	var list []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if v := a.Getenv(name); v != "" {
			list = append(list, name+"="+v)
		}
	}
	return list
}

// Flags are the flags of this call that are settings, each under the key that it sets: that of its tag, else its
// name.
func (a *App) Flags(use config.Use) map[string]config.Flag {
	keys, given := config.Keys(use), map[string]config.Flag{}
	for _, p := range a.Parsed.Path {
		if p.Flag == nil {
			continue
		}
		key := cmp.Or(p.Flag.Tag.Get("key"), strings.ReplaceAll(p.Flag.Name, "-", "_"))
		value, between := fmt.Sprint(p.Flag.Target.Interface()), ","
		if p.Flag.Tag.Type == "path" {
			between = string(os.PathListSeparator)
		}
		if several, ok := p.Flag.Target.Interface().([]string); ok {
			value = strings.Join(several, between)
		}
		if value != "" && slices.Contains(keys, key) {
			given[key] = config.Flag{Name: p.Flag.Name, Value: value}
		}
	}
	return given
}

// JSON reports whether results are wanted for programs: as JSON, or in a form made from it.
func (a *App) JSON() bool { return a.Output != "table" }

// Style is how standard output shows text.
func (a *App) Style() term.Style {
	if a.Screen != nil {
		return a.StyleOf(a.Screen)
	}
	return a.StyleOf(a.Stdout)
}

// StyleOf is how a writer shows text, as --color says.
func (a *App) StyleOf(w io.Writer) term.Style {
	style := term.StyleOf(w, a.Getenv)
	style.Color = style.Color && a.Color != "never" || a.Color == "always"
	return style
}

// Print writes a line of result.
func (a *App) Print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format+"\n", args...)
	return err
}

// Done says that something was done, as text or JSON.
func (a *App) Done(v any, format string, args ...any) error {
	if a.JSON() {
		return a.Encode(v)
	}
	return a.Print(format, args...)
}

// Say writes a line for the person, which is not a result.
func (a *App) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, format+"\n", args...)
}

// Connect returns the client of the control plane that commands talk to.
func (a *App) Connect() (*client.Client, error) {
	target, err := credentials.Find(a.Getenv)
	if err != nil {
		return nil, Usage(err)
	}
	if target.Expired(time.Now()) {
		return nil, Refused(fmt.Errorf("your login at %s has expired: dayfly login", target.URL))
	}
	return Dial(target)
}

// Dial returns a client; it does not connect.
func Dial(to credentials.Target) (*client.Client, error) {
	return client.New(client.Config{URL: to.URL, Token: func() redact.String { return to.Token }, UserAgent: "dayfly/" + VersionText()})
}

// VersionText is the version of this binary: that of the build, else that of the Go module.
func VersionText() string {
	if quick.Version != "" {
		return quick.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
