package engine

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// applied is what tofu or terraform printed while it applied one unit. It is the source of the unit's result: a plan
// from before the apply does not know what other units changed, or that the unit was excluded. Both programs print one
// line for each resource when it is done, also of an apply that fails later, and at the end a line with all counts.
// These lines are the same in all versions that terragrunt runs; only newer ones of tofu have them as JSON too.
type applied struct {
	resources []api.ResourceChange // address, action, and whether it was imported
	outputs   []api.OutputChange   // as the plan of this apply lists them
	complete  bool                 // the line at the end was printed
	calls     int                  // how often the program was called, which terragrunt retries
	counts    map[string]int       // by the verbs of the line at the end
	at        map[string]int       // index in resources, by address
}

// appliedLines are the forms of lines: a resource that is done, an output that changes, and the end. The output of a
// provisioner begins with the address and the name of the provisioner in parentheses, so it matches none.
var appliedLines = sync.OnceValue(func() (re struct{ resource, output, end, count *regexp.Regexp }) {
	re.resource = regexp.MustCompile(`^((?:[^\s:"\[\]]|\[\d+\]|\["(?:\\.|[^"\\])*"\])+)(?: \(deposed object (\w+)\))?: (Creation|Modifications|Destruction|Import) complete (?:after |\[)`)
	re.output = regexp.MustCompile(`^  ([-+~]) (\S+) += `)
	re.end = regexp.MustCompile(`^(?:Apply|Destroy) complete! Resources: (.+)\.$`)
	re.count = regexp.MustCompile(`(\d+) (added|changed|destroyed)`)
	return re
})

// read adds what one call printed.
func (a *applied) read(printed string) {
	a.calls++
	var outputs []api.OutputChange
	inOutputs, re := false, appliedLines()
	for line := range strings.Lines(text.WithoutEscapes(printed)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != ' ' {
			inOutputs = line == "Changes to Outputs:"
		}
		if m := re.output.FindStringSubmatch(line); m != nil && inOutputs {
			action := map[string]string{"+": "create", "~": "update", "-": "delete"}[m[1]]
			outputs = append(outputs, api.OutputChange{Name: m[2], Action: action})
		} else if m := re.resource.FindStringSubmatch(line); m != nil {
			a.did(m[1], m[2], m[3])
		} else if m := re.end.FindStringSubmatch(line); m != nil {
			a.complete, a.outputs, a.counts = true, outputs, map[string]int{}
			for _, m := range re.count.FindAllStringSubmatch(m[1], -1) {
				a.counts[m[2]], _ = strconv.Atoi(m[1])
			}
			return // values of outputs follow
		}
	}
}

// did adds an action on a resource. One that is both created and destroyed is replaced.
func (a *applied) did(address, deposed, word string) {
	action := map[string]string{"Creation": "create", "Modifications": "update", "Destruction": "delete", "Import": "import"}[word]
	i, seen := a.at[address]
	if deposed != "" && (!seen || a.resources[i].Action != "create") {
		address += " (deposed " + deposed + ")"
		i, seen = a.at[address]
	}
	if !seen {
		if a.at == nil {
			a.at = map[string]int{}
		}
		a.at[address] = len(a.resources)
		a.resources = append(a.resources, api.ResourceChange{Address: address, Action: action, Imported: action == "import"})
		return
	}
	before := &a.resources[i].Action
	if *before == "delete" && action == "create" || *before == "create" && action == "delete" {
		action = "replace"
	}
	*before = action
}

// summary is what the unit did. From the plan it takes what is not printed for each resource: the names of attributes,
// and, if the apply came to its end, moves, forgotten resources and drift.
func (a *applied) summary(planned summary) (s summary) {
	known := map[string]api.ResourceChange{}
	for _, r := range planned.changes.Resources {
		known[r.Address] = r
		if a.complete && !slices.Contains([]string{"create", "update", "delete", "replace", "import"}, r.Action) {
			s.did(r)
		}
	}
	for _, r := range a.resources {
		p := known[r.Address]
		if p.Action == r.Action {
			r = p
		}
		r.Provider = p.Provider
		s.did(r)
	}
	if !a.complete {
		return s
	}
	c := &s.changes
	c.Outputs = a.outputs
	if n := a.counts; a.calls == 1 && (n["added"] != c.Add || n["changed"] != c.Change || n["destroyed"] != c.Destroy) {
		c.Add, c.Change, c.Destroy, s.truncated = n["added"], n["changed"], n["destroyed"], true
	}
	return s
}

// did counts and lists a change that was made.
func (s *summary) did(r api.ResourceChange) {
	if r.Imported {
		s.changes.Import++
	}
	if r.From != "" {
		s.changes.Move++
	}
	s.add(r)
}

// applied reads what the script of wrapEngine kept, by unit.
func (g *terragrunt) applied() map[string]*applied {
	all := map[string]*applied{}
	dirs, _ := g.temp.names(g.printed)
	for _, dir := range dirs {
		dir = path.Join(g.printed, dir)
		unit, ok := g.unitOf(dir)
		if !ok {
			continue
		}
		if all[unit] == nil {
			all[unit] = &applied{}
		}
		if printed, err := g.temp.read(path.Join(dir, "printed"), maxPlanJSON); err == nil {
			all[unit].read(string(printed))
		}
	}
	return all
}

// unitOf is the unit of a call, of which the script has kept the directory.
func (g *terragrunt) unitOf(kept string) (unit string, ok bool) {
	where, err := g.temp.read(path.Join(kept, "dir"), 10*maxAddress)
	rel, relErr := filepath.Rel(g.j.Root, strings.TrimSuffix(string(where), "\n"))
	if err != nil || relErr != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	unit, _, _ = strings.Cut("./"+rel+"/", "/.terragrunt-cache/")
	return path.Clean(unit), true
}

// listUnits lists the result of each unit. One that was interrupted has no result.
func (g *terragrunt) listUnits(e ended, changes map[string]summary, asPlanned []string) {
	g.out.Units = nil
	names := slices.Collect(maps.Keys(changes))
	for _, u := range e.units {
		names = append(names, u.name)
	}
	slices.Sort(names)
	var cut summary
	for _, name := range slices.Compact(names) {
		u := api.UnitResult{Unit: name, Result: e.result(name), Planned: slices.Contains(asPlanned, name)}
		cut.cut(&u.Unit, maxAddress)
		if s, ok := changes[name]; ok {
			c := s.changes
			u.Outputs, c.Resources, c.Outputs, u.Changes = min(len(c.Outputs), maxCounted), nil, nil, &c
		}
		g.out.Units = append(g.out.Units, u)
	}
	g.out.Units = fitting(&cut, g.out.Units, maxUnits, maxUnitBytes)
	g.out.Truncated = g.out.Truncated || cut.truncated
}

// did is what each unit did that was applied. Where a unit succeeded and its program did not print that, it is its plan,
// and the unit is in asPlanned.
func (g *terragrunt) did(e ended) (did map[string]summary, asPlanned []string) {
	did = map[string]summary{}
	printed := g.applied()
	for unit, a := range printed {
		did[unit] = a.summary(g.plans[unit])
	}
	for _, unit := range slices.Sorted(maps.Keys(g.plans)) {
		if a := printed[unit]; (a == nil || !a.complete) && e.succeeded(unit) {
			did[unit] = g.plans[unit]
			asPlanned = append(asPlanned, unit)
		}
	}
	return did, asPlanned
}
