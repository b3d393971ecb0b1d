package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// otherState is a state that exists elsewhere than in the workspace's place.
type otherState struct {
	name        string // users choose it by this name
	description string // description for messages
	doc         *document
	from        *folder // where its file is
	file        string
	main        bool // beside the code, of the engine's workspace that the run is for
}

func (c otherState) String() string { return fmt.Sprintf("%s (%s)", c.description, c.doc) }

// stateFindings is all that is known about the state of a run before anything is planned.
type stateFindings struct {
	place string         // the workspace's place, in words
	is    api.StateFound // which that is, without a lineage
	doc   *document      // the state in it; nil means none

	known    *api.StateFound // state of the last run
	found    []otherState    // states elsewhere that hold something
	withheld bool            // there may be one more, which is not for this run
	others   []string        // the engine's workspaces that have a state in the place, if that of the run has none
	differs  []string        // settings in which the backend differs from the one that the source's own init has set up

	takeOver, beginAnew bool // options of the run
	from                string
}

// decision is the result of decide.
type decision struct {
	take *otherState // becomes the state of the run
	note string      // for the log; empty: nothing to say
}

// decide says whether a run may go on with the state that is in the workspace's place. Nothing is ever planned on an
// empty state while another one exists, until the user says which of the two is meant. It is a pure function.
func decide(s stateFindings) (decision, error) {
	same := s.known != nil && samePlace(*s.known, s.is)
	kept := s.known != nil && s.known.Lineage != "" // there was a state
	moved := kept && !same
	overrides := s.is.Declared != "" && !same && !moved
	switch {
	case s.beginAnew:
		return decision{note: fmt.Sprintf("begin_anew: the run uses %s as it is (state: %s)", s.place, s.doc)}, nil
	case s.takeOver && s.doc == nil:
		return s.chooseTakeOver(kept)
	case s.takeOver && kept && s.doc.lineage == s.known.Lineage && s.doc.serial >= s.known.Serial:
		return decision{note: fmt.Sprintf("take_over: the state is in %s already (%s)", s.place, s.doc)}, nil
	case s.takeOver && (moved || overrides || kept && s.doc.lineage != s.known.Lineage || s.othersDiffer()):
		return refuse(adviceBeginAnew, "%s holds a state already (%s), which is not overwritten", s.place, s.doc)
	case moved:
		return s.moved()
	case overrides && s.doc != nil:
		return refuse(adviceBeginAnew, "%s, which holds a state (%s)", overriding(s.is.Declared, s.place), s.doc)
	case overrides:
		return refuse(adviceTakeOver, "%s", overriding(s.is.Declared, s.place))
	case s.doc == nil:
		return s.empty(kept)
	case kept && s.doc.lineage != s.known.Lineage:
		return refuse(adviceBeginAnew, "%s holds another state than the last run left there: %s instead of %s", s.place, s.doc, runtext.WhichState(s.known.Lineage, s.known.Serial))
	case kept && s.doc.serial < s.known.Serial:
		return refuse(adviceBeginAnew, "%s holds an older state than the last run left there: serial %d instead of %d", s.place, s.doc.serial, s.known.Serial)
	case s.known == nil && len(s.differs) > 0:
		return s.otherBackend()
	case kept && s.doc.serial > s.known.Serial:
		return decision{note: fmt.Sprintf("the state was changed elsewhere since the last run: its serial is %d, and was %d", s.doc.serial, s.known.Serial)}, nil
	case s.takeOver:
		return decision{note: fmt.Sprintf("take_over: %s holds a state already (%s), and nothing is taken over", s.place, s.doc)}, nil
	}
	return decision{}, nil
}

// moved decides about a run that would use another place than the last one.
func (s stateFindings) moved() (decision, error) {
	text := fmt.Sprintf("the last run left its state (%s) elsewhere: %s; this run would use %s",
		runtext.WhichState(s.known.Lineage, s.known.Serial), differsIn(*s.known, s.is), s.place)
	switch {
	case s.doc != nil && s.doc.lineage == s.known.Lineage && s.doc.serial >= s.known.Serial:
		return refuse("If it was moved there, run it again with --take-over", "%s, which holds that state too (%s)", text, s.doc)
	case s.doc != nil:
		return refuse(adviceBeginAnew, "%s, which holds another state (%s)", text, s.doc)
	case len(s.found) > 0:
		return refuse(adviceTakeOver, "%s, which holds no state, and there is %s", text, s.all())
	}
	return refuse("Move the state there, or run it again with --begin-anew to begin without it", "%s, which holds no state", text)
}

// empty decides about a place without a state.
func (s stateFindings) empty(kept bool) (decision, error) {
	switch {
	case kept:
		return refuse(adviceBeginAnew, "there is no state in %s any more, where the last run left %s", s.place, runtext.WhichState(s.known.Lineage, s.known.Serial))
	case len(s.found) > 0:
		return refuse(adviceTakeOver, "the workspace has no state yet in %s, but there is %s", s.place, s.all())
	case s.withheld:
		return refuse(adviceBeginAnew, "the workspace has no state yet in %s, and a deleted workspace of this name in another project may have left one: "+
			"only an admin of both projects may take it over", s.place)
	case len(s.others) > 0:
		return refuse("Choose one of them with state.workspace, or run it again with --begin-anew to begin without them",
			"the engine's workspace %s has no state in %s, but others have: %s", s.is.Workspace, s.place, strings.Join(s.others, ", "))
	case len(s.differs) > 0:
		return s.otherBackend()
	}
	return decision{note: fmt.Sprintf("there is no state in %s yet: it begins empty", s.place)}, nil
}

func (s stateFindings) otherBackend() (decision, error) {
	return refuse("Put the settings that init was given then into state.backend_config, or run it again with --begin-anew",
		"the run's backend is not the one that was set up in the source's own .terraform; it differs in %s", strings.Join(s.differs, ", "))
}

// all lists the states that exist elsewhere.
func (s stateFindings) all() string {
	var all []string
	for _, c := range s.found {
		all = append(all, c.String())
	}
	return strings.Join(all, ", ")
}

// chooseTakeOver chooses the state to take over into an empty place.
func (s stateFindings) chooseTakeOver(kept bool) (decision, error) {
	fit := s.candidates()
	switch {
	case len(fit) == 1:
		return decision{take: &fit[0], note: "take_over: from " + fit[0].String()}, nil
	case len(fit) > 1 || s.from != "":
		var names []string
		for _, c := range s.found {
			names = append(names, c.name+" for "+c.String())
		}
		if len(names) == 0 {
			return refuse(adviceBeginAnew, "there is nothing to take over under the name %s", s.from)
		}
		return refuse("Say which with --take-over-from", "there is more than one state, or none of that name, to take over: %s", strings.Join(names, "; "))
	case kept || s.withheld || len(s.others) > 0 || len(s.differs) > 0:
		return refuse(adviceBeginAnew, "there is no state in %s, and none beside the code that this run may take over", s.place)
	}
	return decision{note: fmt.Sprintf("take_over: there is nothing to take over, and no state in %s yet", s.place)}, nil
}

// candidates lists the states that may be taken over, by the name that the user gave.
func (s stateFindings) candidates() (fit []otherState) {
	beside := slices.IndexFunc(s.found, func(c otherState) bool { return c.main })
	for _, c := range s.found {
		switch {
		case s.from != "" && c.name != s.from:
		case s.from == "" && beside >= 0 && !c.main && c.from == s.found[beside].from:
			// The state of another of the engine's workspaces; that of the run's own is meant.
		default:
			fit = append(fit, c)
		}
	}
	return fit
}

// othersDiffer says whether a state elsewhere has another lineage than the one in the place.
func (s stateFindings) othersDiffer() bool {
	for _, c := range s.found {
		if c.doc.lineage != s.doc.lineage {
			return true
		}
	}
	return false
}

// The usual advice after a refusal.
const (
	adviceTakeOver  = "Run it again with --take-over to make that state the workspace's own, or with --begin-anew to go on without it"
	adviceBeginAnew = "To use the state that is there, run it again with --begin-anew"
)

func refuse(todo, format string, args ...any) (decision, error) {
	return decision{}, elsewhere(todo, format, args...)
}

// elsewhere refuses a run until its user says which of two states is meant.
func elsewhere(todo, format string, args ...any) error {
	todo = "; nothing was planned. " + todo
	return &Failure{
		Reason: workflow.ReasonStateElsewhere, Err: workflow.ErrConflict,
		Detail: text.Middle(fmt.Sprintf(format, args...), maxDetail-len(todo)) + todo,
	}
}

// overriding says that a workspace keeps its state elsewhere than its code declares.
func overriding(declared, place string) string {
	if declared == "cloud" {
		declared = "a cloud block"
	} else {
		declared = "the backend " + declared
	}
	return fmt.Sprintf("the code declares %s, but the workspace keeps its state in %s", declared, place)
}

// samePlace says whether two runs would find the same state.
func samePlace(a, b api.StateFound) bool {
	return a.Backend == b.Backend && a.Settings == b.Settings && a.Workspace == b.Workspace && a.Store == b.Store && a.Declared == b.Declared
}

// differsIn says how a place differs from the one of the last run.
func differsIn(known, is api.StateFound) string {
	var all []string
	add := func(name, was, now string) {
		if was != now {
			all = append(all, fmt.Sprintf("%s %s instead of %s", name, orNone(was), orNone(now)))
		}
	}
	add("backend", known.Backend, is.Backend)
	add("the engine's workspace", known.Workspace, is.Workspace)
	add("declared", known.Declared, is.Declared)
	switch {
	case len(all) > 0:
		return strings.Join(all, ", ")
	case known.Store != is.Store:
		return "on another machine or in another data directory"
	}
	return "other settings of the backend " + is.Backend
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
