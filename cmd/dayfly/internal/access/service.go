package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// ServiceCommands are the commands of dayfly service-principal.
type ServiceCommands struct {
	Create       serviceCreate `cmd:"" help:"Create a service principal and print its secret, once."`
	List         serviceList   `cmd:"" help:"List service principals."`
	Update       serviceUpdate `cmd:"" help:"Change a service principal; its tokens follow at once."`
	RotateSecret serviceRotate `cmd:"" help:"Print a new secret of a service principal, once."`
	Delete       serviceDelete `cmd:"" help:"Delete a service principal; its tokens end."`
}

// serviceFlags are the settings of a service principal.
type serviceFlags struct {
	Role        *string        `help:"Its role in the whole organization: viewer, operator or admin; empty for none."`
	Grant       []string       `sep:"none" placeholder:"PROJECT=ROLE" help:"Its role in a project and all below it. May be repeated; all grants are replaced."`
	MaxLifetime *time.Duration `placeholder:"DURATION" help:"Longest lifetime of its tokens, from 1m to 12h; default 1h."`
}

func (f serviceFlags) settings() (in api.ServicePrincipalSettings, err error) {
	in.Role = f.Role
	if f.Grant != nil {
		grants, err := grantsOf(f.Grant)
		if err != nil {
			return in, cli.Usage(err)
		}
		in.Grants = &grants
	}
	if d := f.MaxLifetime; d != nil {
		if *d%time.Second != 0 {
			return in, cli.Usage(fmt.Errorf("--max-lifetime: want whole seconds, not %s", *d))
		}
		in.MaxLifetimeSeconds = new(int(*d / time.Second))
	}
	return in, nil
}

type serviceCreate struct {
	Name string `arg:"" help:"Its name, which the audit shows."`
	serviceFlags
}

// Run creates the service principal.
func (c *serviceCreate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	s, err := cl.CreateService(a.Ctx, api.NewServicePrincipal{Name: c.Name, ServicePrincipalSettings: in})
	if err != nil {
		return err
	}
	return a.PrintSecret(s, s.Secret, "the secret of service principal %s, client id %s, is shown only once: store it", s.ServicePrincipal.Name, s.ServicePrincipal.ClientID)
}

type serviceList struct{}

// Run prints the list.
func (c *serviceList) Run(a *cli.App, cl *client.Client) error {
	return cli.List(a, cl.Services, "no service principals",
		[]string{"NAME", "CLIENT ID", "ROLE", "GRANTS", "SECRETS", "STATE", "CREATED"}, func(s api.ServicePrincipal) []string {
			var grants []string
			for _, project := range slices.Sorted(maps.Keys(s.Grants)) {
				grants = append(grants, project+"="+s.Grants[project])
			}
			return []string{s.Name, s.ClientID, cli.Dash(s.Role), cli.Dash(strings.Join(grants, ",")), fmt.Sprint(len(s.Secrets)), activeOr(s.IsDisabled), term.Time(s.CreatedAt)}
		})
}

type serviceUpdate struct {
	Name string `arg:"" help:"The service principal."`
	serviceFlags
	Disable bool `xor:"state" help:"End its tokens, and issue none."`
	Enable  bool `xor:"state" help:"Let it log in again."`
}

// Run changes the service principal.
func (c *serviceUpdate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	if c.Disable || c.Enable {
		in.IsDisabled = &c.Disable
	}
	if in == (api.ServicePrincipalSettings{}) {
		return cli.Usage(errors.New("nothing to change: name a flag"))
	}
	s, err := cl.UpdateService(a.Ctx, c.Name, in)
	if err != nil {
		return err
	}
	return a.Done(s, "service principal %s is changed", s.Name)
}

type serviceRotate struct {
	Name    string        `arg:"" help:"The service principal."`
	Overlap time.Duration `default:"1h" help:"For how long the previous secret stays valid, at most 168h; 0 ends it and its tokens at once."`
	cli.Confirmed
}

// Run makes the secret.
func (c *serviceRotate) Run(a *cli.App, cl *client.Client) error {
	if err := c.ConfirmOverlap(a, c.Overlap, "secret and tokens of service principal "+c.Name); err != nil {
		return err
	}
	s, err := cl.RotateSecret(a.Ctx, c.Name, api.RotateSecret{OverlapSeconds: int(c.Overlap / time.Second)})
	if err != nil {
		return err
	}
	return a.PrintSecret(s, s.Secret, "the new secret of service principal %s, client id %s, is shown only once: store it", s.ServicePrincipal.Name, s.ServicePrincipal.ClientID)
}

type serviceDelete struct {
	Name string `arg:"" help:"The service principal."`
	cli.Confirmed
}

// Run deletes the service principal.
func (c *serviceDelete) Run(a *cli.App, cl *client.Client) error {
	return c.Delete(a, "service principal", c.Name, " and ends its tokens", cl.DeleteService)
}

func activeOr(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}
