package runs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// runOptions are the options of a run beside its workspace. A comma is part of a value: addresses have some.
type runOptions struct {
	Targets     []string `name:"target" sep:"none" placeholder:"ADDRESS" help:"Only this resource and its dependencies; repeat it for more."`
	Replace     []string `sep:"none" placeholder:"ADDRESS" help:"Replace this resource; repeat it for more."`
	Vars        []string `name:"var" sep:"none" placeholder:"NAME=VALUE" help:"Variable that wins over the workspace's; read by its declared type, as the engine's own -var. Never a secret."`
	VarFiles    []string `name:"var-file" sep:"none" placeholder:"FILE" help:"File of variables in the source, relative to the root module; it is read after those of the workspace."`
	Ref         *string  `placeholder:"REF" help:"Branch, tag or commit of the git source, instead of the workspace's."`
	RefreshOnly bool     `help:"Change no resource, only the records of them in the state."`
	Imports     []string `name:"import" sep:"none" placeholder:"ADDRESS=ID" help:"Take a resource that exists into the state; repeat it for more."`
}

// options returns the options that the flags set; nil where they set none.
func (c *runOptions) options() (*api.Options, error) {
	out := &api.Options{Targets: c.Targets, Replace: c.Replace, VarFiles: c.VarFiles, RefreshOnly: c.RefreshOnly}
	if c.Ref != nil {
		if out.Ref = *c.Ref; out.Ref == "" { // as of a shell variable that is not set
			return nil, cli.Usage(errors.New("--ref: want a branch, tag or commit"))
		}
	}
	for _, given := range c.Vars {
		name, value, ok := strings.Cut(given, "=")
		if !ok || name == "" {
			return nil, cli.Usage(errors.New("--var: want NAME=VALUE"))
		}
		if out.Variables == nil {
			out.Variables = map[string]any{}
		}
		out.Variables[name] = value
	}
	for _, given := range c.Imports {
		address, id, ok := cutAddress(given)
		if !ok {
			return nil, cli.Usage(fmt.Errorf("--import: want ADDRESS=ID, not %q", given))
		}
		out.Imports = append(out.Imports, api.Import{To: address, ID: id})
	}
	if len(out.Asked()) == 0 {
		return nil, nil //nolint:nilnil // no options
	}
	return out, nil
}

// cutAddress cuts ADDRESS=ID at the first = that is not in a quoted key of the address.
func cutAddress(s string) (address, id string, ok bool) {
	quoted := false
	for i, r := range s {
		switch {
		case r == '"' && (i == 0 || s[i-1] != '\\'):
			quoted = !quoted
		case r == '=' && !quoted:
			return s[:i], s[i+1:], i > 0 && i+1 < len(s)
		}
	}
	return "", "", false
}
