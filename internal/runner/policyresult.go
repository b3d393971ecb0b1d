package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	// Bounds of the results of all policies, in bytes of their JSON and in findings of a group.
	maxFindingBytes = 70 << 10
	maxWaiverBytes  = 30 << 10
	maxFindings     = 500
	// maxStops is how many groups a failure names.
	maxStops = 3
)

// evaluateGroups returns the result of each policy group, from its package's answer, its enforcement and its waivers.
// A waiver is for one rule, at one address or at all, and never for a group that could not be evaluated. It is a pure
// function.
func evaluateGroups(held []api.Policy, answers []api.PackageAnswer) []api.PolicyResult {
	out := make([]api.PolicyResult, 0, len(held))
	for i, p := range held {
		r := api.PolicyResult{Group: p.Group, Enforcement: p.Enforcement, Rules: answers[i].Rules, Error: answers[i].Error}
		for _, f := range answers[i].Findings {
			is := api.PolicyFinding{Rule: f.Rule, Address: f.Address, Message: f.Message, Outcome: api.FindingDenied}
			switch by, waived := waiverFor(p, f); {
			case f.Warns:
				is.Outcome = api.FindingWarned
				r.Warned++
			case waived:
				is.Outcome, is.Waiver = api.FindingWaived, by.Name
				r.Waived++
				if !slices.ContainsFunc(r.Waivers, func(w api.PolicyWaiver) bool { return w.Name == by.Name }) {
					r.Waivers = append(r.Waivers, by)
				}
			default:
				r.Denied++
			}
			r.Findings = append(r.Findings, is)
		}
		out = append(out, r)
	}
	return out
}

// waiverFor returns the waiver that lets a finding pass, if there is one.
func waiverFor(p api.Policy, f api.PackageFinding) (api.PolicyWaiver, bool) {
	if p.Enforcement != api.PolicyWaivable {
		return api.PolicyWaiver{}, false
	}
	i := slices.IndexFunc(p.Waivers, func(w api.PolicyWaiver) bool {
		return w.Rule == f.Rule && (w.Address == "" || w.Address == f.Address)
	})
	if i < 0 {
		return api.PolicyWaiver{}, false
	}
	return p.Waivers[i], true
}

// bounded cuts the results of policies to the bounds: denied findings come first, in all groups, and the counts stay
// whole. It is a pure function.
func bounded(all []api.PolicyResult) []api.PolicyResult {
	out := slices.Clone(all)
	waivers, findings := maxWaiverBytes, maxFindingBytes
	for i := range out {
		out[i].Findings, out[i].Waivers = nil, nil
		for _, w := range all[i].Waivers {
			if room(&waivers, w) {
				out[i].Waivers = append(out[i].Waivers, w)
			}
		}
	}
	order := []string{api.FindingDenied, api.FindingWaived, api.FindingWarned}
	for _, outcome := range order {
		for i := range out {
			for _, f := range all[i].Findings {
				if f.Outcome == outcome && len(out[i].Findings) < maxFindings && room(&findings, f) {
					out[i].Findings = append(out[i].Findings, f)
				}
			}
		}
	}
	for i := range out {
		slices.SortStableFunc(out[i].Findings, func(a, b api.PolicyFinding) int {
			return cmp.Or(cmp.Compare(slices.Index(order, a.Outcome), slices.Index(order, b.Outcome)), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Message, b.Message))
		})
	}
	return out
}

// room takes the JSON of a value from the rest of a bound, if there is room for it.
func room(rest *int, v any) bool {
	raw, err := json.Marshal(v)
	if err != nil || len(raw)+1 > *rest {
		return false
	}
	*rest -= len(raw) + 1
	return true
}

// stopped says why a run must not go on; empty where it may. An advisory group stops nothing. It is a pure function.
func stopped(all []api.PolicyResult) string {
	var why []string
	for _, r := range all {
		if r.Enforcement == api.PolicyAdvisory {
			continue
		}
		if r.Error != "" {
			why = append(why, fmt.Sprintf("policy group %s could not be evaluated: %s", r.Group, strings.TrimSuffix(r.Error, ".")))
		}
		if r.Denied == 0 {
			continue
		}
		said := fmt.Sprintf("policy group %s denies it", r.Group)
		if len(r.Findings) > 0 { // the denied ones are the first
			said += ": " + runtext.Finding(r, r.Findings[0])
		}
		if more := r.Denied - 1; more > 0 {
			said += fmt.Sprintf(", and %d more", more)
		}
		if r.Enforcement == api.PolicyWaivable {
			said += "; an admin can give a waiver for it"
		}
		why = append(why, said)
	}
	if len(why) > maxStops {
		why = append(why[:maxStops], text.Count(len(why)-maxStops, "further reason"))
	}
	return strings.Join(why, ". ")
}
