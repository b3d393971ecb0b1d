package main

import (
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

type policyCommands struct {
	Apply  policyApply       `cmd:"" help:"Create or change the policy groups that files describe."`
	List   policyList        `cmd:"" help:"List policy groups."`
	Show   policyShow        `cmd:"" aliases:"get" help:"Show a policy group."`
	Delete policyDelete      `cmd:"" help:"Delete a policy group that has no waivers in force."`
	Test   policyTestCommand `cmd:"" help:"Run the tests of a package of policies, and show what it says of a recorded plan."`
}

type policyApply struct {
	applyFlags
}

// Run applies the policy groups. A document that names no kind is one.
func (c *policyApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.PolicyGroup, nil))
}

type policyList struct{}

// Run prints the list.
func (c *policyList) Run(a *app, cl *client.Client) error {
	return list(a, cl.PolicyGroups, "no policy groups: make one with dayfly policy apply -f FILE",
		[]string{"GROUP", "ENFORCEMENT", "HOLDS FOR", "SOURCE", "STATE"}, func(g api.PolicyGroup) []string {
			return []string{g.Name, g.Enforcement, strings.Join(slices.Concat(g.Workspaces, g.Projects), ","), whence(g.Source), activeOr(g.IsDisabled)}
		})
}

// whence says in a word where a package comes from.
func whence(s api.Source) string {
	switch {
	case s.Git != nil:
		return s.Git.URL
	case s.Archive != nil:
		return s.Archive.URL
	}
	return s.RootModule()
}

type policyShow struct {
	PolicyGroup string `arg:"" help:"The policy group."`
}

// Run prints the policy group.
func (c *policyShow) Run(a *app, cl *client.Client) error {
	g, err := cl.PolicyGroup(a.ctx, c.PolicyGroup)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.PolicyGroup, asPolicyGroup(g), g, "")
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("policy group", g.Name)
	line("description", g.Description)
	line("enforcement", g.Enforcement)
	line("workspaces", strings.Join(g.Workspaces, ", "))
	line("projects", strings.Join(g.Projects, ", "))
	line("source", whence(g.Source))
	line("edited by", g.EditedBy)
	if g.IsDisabled {
		line("state", "disabled")
	}
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type policyDelete struct {
	PolicyGroup string `arg:"" help:"The policy group."`
	confirmed
}

// Run deletes the policy group.
func (c *policyDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "policy group", c.PolicyGroup, ": no run that starts from now on is held to it", cl.DeletePolicyGroup)
}

type waiverCommands struct {
	Apply  waiverApply  `cmd:"" help:"Give or change the waivers that files describe."`
	List   waiverList   `cmd:"" help:"List waivers, also those that are over."`
	Show   waiverShow   `cmd:"" aliases:"get" help:"Show a waiver."`
	Delete waiverDelete `cmd:"" help:"Take a waiver back."`
}

type waiverApply struct {
	applyFlags
}

// Run gives the waivers. A document that names no kind is one.
func (c *waiverApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.Waiver, nil))
}

type waiverList struct{}

// Run prints the list.
func (c *waiverList) Run(a *app, cl *client.Client) error {
	now := time.Now()
	return list(a, cl.Waivers, "no waivers: give one with dayfly waiver apply -f FILE",
		[]string{"WAIVER", "GROUP", "RULE", "WORKSPACE", "ADDRESS", "UNTIL", "BY", "WHY"}, func(w api.Waiver) []string {
			return []string{w.Name, w.Group, w.Rule, w.Workspace, dash(w.Address), untilOf(w, now), w.GivenBy, w.Reason}
		})
}

// untilOf is when a waiver ends, or that it is over.
func untilOf(w api.Waiver, now time.Time) string {
	if !now.Before(w.Until) {
		return "over"
	}
	return minute(&w.Until)
}

type waiverShow struct {
	Waiver string `arg:"" help:"The waiver."`
}

// Run prints the waiver.
func (c *waiverShow) Run(a *app, cl *client.Client) error {
	w, err := cl.Waiver(a.ctx, c.Waiver)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.Waiver, asWaiver(w), w, "")
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("waiver", w.Name)
	line("policy group", w.Group)
	line("rule", w.Rule)
	line("workspace", w.Workspace)
	line("address", w.Address)
	line("until", untilOf(w, time.Now()))
	line("given by", w.GivenBy)
	line("why", w.Reason)
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type waiverDelete struct {
	Waiver string `arg:"" help:"The waiver."`
	confirmed
}

// Run takes the waiver back.
func (c *waiverDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "waiver", c.Waiver, ": runs that start from now on do not pass by it", cl.DeleteWaiver)
}
