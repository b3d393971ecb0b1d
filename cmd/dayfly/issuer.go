package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

type issuerCommands struct {
	Apply  issuerApply  `cmd:"" help:"Create or change the issuer that a file describes."`
	List   issuerList   `cmd:"" help:"List issuers."`
	Show   issuerShow   `cmd:"" help:"Show an issuer and its trust rules."`
	Delete issuerDelete `cmd:"" help:"Delete an issuer; the tokens that it gave end."`
}

type issuerApply struct {
	File string `short:"f" required:"" help:"A file in YAML with the fields of an issuer, or - for standard input."`
}

const mostIssuerFile = 256 << 10

// Run registers the issuer.
func (c *issuerApply) Run(a *app, cl *client.Client) error {
	from := a.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return usage(err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, mostIssuerFile+1))
	if err != nil {
		return usage(err)
	}
	in, err := readIssuer(data)
	if err != nil {
		return usage(fmt.Errorf("%s: %w", c.File, err))
	}
	stored, outcome, err := cl.PutIssuer(a.ctx, in)
	if err != nil {
		return err
	}
	return a.done(stored, "issuer %s is %s", stored.Name, outcome)
}

// readIssuer reads the file of an issuer. Unknown fields are mistakes.
func readIssuer(data []byte) (in api.Issuer, err error) {
	if len(data) > mostIssuerFile {
		return in, fmt.Errorf("has more than %d bytes", mostIssuerFile)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return in, fmt.Errorf("is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	asTexts(&doc)
	var plain any
	if err := doc.Decode(&plain); err != nil {
		return in, fmt.Errorf("is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	as, err := json.Marshal(plain)
	if err != nil {
		return in, errors.New("has keys that are no names")
	}
	d := json.NewDecoder(bytes.NewReader(as))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if in.Name == "" {
		return in, errors.New("name: give the issuer a name, such as github")
	}
	return in, nil
}

// asTexts makes the values of claims texts, as they are written: an id of digits is not a number.
func asTexts(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value != "claims" || n.Content[i+1].Kind != yaml.MappingNode {
				continue
			}
			for j := 1; j < len(n.Content[i+1].Content); j += 2 {
				if v := n.Content[i+1].Content[j]; v.Kind == yaml.ScalarNode {
					v.Tag, v.Style = "!!str", yaml.DoubleQuotedStyle
				}
			}
		}
	}
	for _, inner := range n.Content {
		asTexts(inner)
	}
}

type issuerList struct{}

// Run prints the list.
func (c *issuerList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Issuers, "no issuers: register one with dayfly issuer apply -f FILE",
		[]string{"ISSUER", "URL", "RULES", "LOGIN", "STATE"}, func(i api.Issuer) []string {
			state, login := "active", "-"
			if i.IsDisabled {
				state = "disabled"
			}
			if i.Login != nil {
				login = i.Login.ClientID
			}
			return []string{i.Name, i.URL, fmt.Sprint(len(i.Rules)), login, state}
		})
}

type issuerShow struct {
	Name string `arg:"" help:"The issuer."`
}

// Run prints the issuer.
func (c *issuerShow) Run(a *app, cl *client.Client) error {
	i, err := cl.Issuer(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.encode(i)
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("issuer", i.Name)
	line("url", i.URL)
	line("audiences", strings.Join(i.Audiences, ", "))
	line("algorithms", strings.Join(i.Algorithms, ", "))
	if i.Shared {
		line("shared", "yes: each rule names an owner")
	}
	if i.IsDisabled {
		line("state", "disabled")
	}
	if i.Login != nil {
		line("login", i.Login.ClientID+" "+strings.Join(i.Login.Scopes, " "))
	}
	for n, r := range i.Rules {
		conditions := map[string]any{"claims": r.Claims}
		if r.GroupsClaim != "" {
			conditions[r.GroupsClaim] = r.Groups
		}
		said, err := json.Marshal(conditions)
		if err != nil {
			return err
		}
		becomes := strings.TrimSpace(r.Becomes + " " + r.Role + r.Pool)
		if len(r.Grants) > 0 {
			becomes += " with " + text.Count(len(r.Grants), "grant")
		}
		line(fmt.Sprintf("rule %d", n+1), becomes+" if "+string(said))
	}
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type issuerDelete struct {
	Name string `arg:"" help:"The issuer."`
	confirmed
}

// Run deletes the issuer.
func (c *issuerDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "issuer", c.Name, " and ends the tokens that it gave", cl.DeleteIssuer)
}
