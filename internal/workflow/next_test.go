package workflow_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// everyFacts yields each combination of facts that a move may depend on.
func everyFacts() []workflow.Facts {
	var all []workflow.Facts
	for _, typ := range workflow.Types() {
		for _, cancel := range []bool{false, true} {
			for lapses := range workflow.MaxLapses + 1 {
				for starts := range workflow.MaxStarts + 1 {
					for _, held := range []bool{false, true} {
						for _, out := range []workflow.State{workflow.Succeeded, workflow.Failed, workflow.Cancelled} {
							all = append(all, workflow.Facts{Type: typ, CancelRequested: cancel, Lapses: lapses, Starts: starts, Held: held, Outcome: out, Reason: workflow.ReasonStepFailed})
						}
					}
				}
			}
		}
	}
	return all
}

// want is the contract, written a second time and in another form than the table: one branch for each sentence.
func want(from workflow.State, on workflow.Event, f workflow.Facts) (to workflow.State, reason workflow.Reason, ok bool) {
	scanAgain := f.Type != workflow.Deployment && f.Starts < 3
	lost := func(reason workflow.Reason) (workflow.State, workflow.Reason, bool) {
		switch {
		case f.CancelRequested:
			return workflow.Cancelled, workflow.ReasonCancelled, true
		case scanAgain:
			return workflow.Pending, "", true
		}
		return workflow.Failed, reason, true
	}
	lapsed := func() (workflow.State, workflow.Reason, bool) {
		if f.Lapses >= 4 {
			return workflow.Failed, workflow.ReasonNeverStarted, true
		}
		return workflow.Pending, "", true
	}
	switch from {
	case workflow.Pending:
		switch on { //nolint:exhaustive // every other event is refused
		case workflow.OnClaim:
			return workflow.Claimed, "", true
		case workflow.OnCancel:
			return workflow.Cancelled, workflow.ReasonCancelled, true
		case workflow.OnQueueTimeout:
			return workflow.Failed, workflow.ReasonExpiredInQueue, true
		}
	case workflow.Claimed:
		switch on { //nolint:exhaustive // every other event is refused
		case workflow.OnStart:
			return workflow.Running, "", true
		case workflow.OnRunnerTooOld:
			return workflow.Failed, workflow.ReasonRunnerTooOld, true
		case workflow.OnPlanStale:
			return workflow.Failed, workflow.ReasonPlanStale, true
		case workflow.OnNotApproved:
			return workflow.Failed, workflow.ReasonNotApproved, true
		case workflow.OnInputMissing:
			return workflow.Failed, workflow.ReasonInputMissing, true
		case workflow.OnRelease:
			return workflow.Pending, "", true
		case workflow.OnLeaseLapsed, workflow.OnTaskStopped:
			return lapsed()
		case workflow.OnLaunchFailed:
			return workflow.Failed, workflow.ReasonLaunchFailed, true
		case workflow.OnLaunchWindow:
			if f.Held {
				return workflow.Pending, "", true
			}
			return workflow.Failed, workflow.ReasonLaunchWindow, true
		case workflow.OnCancel:
			return workflow.Cancelled, workflow.ReasonCancelled, true
		}
	case workflow.Running:
		switch on { //nolint:exhaustive // every other event is refused
		case workflow.OnResult:
			return f.Outcome, f.Reason, true
		case workflow.OnCancel, workflow.OnHandedOver:
			return workflow.Running, "", true
		case workflow.OnSilence:
			return lost(workflow.ReasonRunnerLost)
		case workflow.OnTaskStopped:
			return lost(workflow.ReasonTaskStopped)
		case workflow.OnResultMissing:
			return lost(workflow.ReasonResultMissing)
		case workflow.OnDeadline:
			if f.CancelRequested {
				return workflow.Cancelled, workflow.ReasonCancelled, true
			}
			return workflow.Failed, workflow.ReasonDeadline, true
		}
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
	}
	return "", "", false
}

// C8, C18: every state, every event, every combination of facts.
func TestNext_EveryMoveIsTheContracts(t *testing.T) {
	moves := 0
	for _, from := range workflow.States() {
		for _, on := range workflow.Events() {
			for _, f := range everyFacts() {
				to, reason, ok := want(from, on, f)
				got, err := workflow.Next(from, on, f)
				if !ok {
					if !errors.Is(err, workflow.ErrConflict) {
						t.Fatalf("Next(%s, %s, %+v) = %+v, %v; want a conflict", from, on, f, got, err)
					}
					continue
				}
				if err != nil || got.To != to || got.Reason != reason || got.From != from {
					t.Fatalf("Next(%s, %s, %+v) = %+v, %v; want %s %q", from, on, f, got, err, to, reason)
				}
				wantLapse := from == workflow.Claimed && (on == workflow.OnLeaseLapsed || on == workflow.OnTaskStopped)
				if got.Lapse != wantLapse {
					t.Fatalf("Next(%s, %s) lapse = %v, want %v", from, on, got.Lapse, wantLapse)
				}
				moves++
			}
		}
	}
	if moves == 0 {
		t.Fatal("no move was tried")
	}
}

func TestNext_NothingLeavesATerminalState(t *testing.T) {
	for _, from := range workflow.States() {
		if !from.Terminal() {
			continue
		}
		for _, on := range workflow.Events() {
			for _, f := range everyFacts() {
				if m, err := workflow.Next(from, on, f); err == nil {
					t.Fatalf("Next(%s, %s) = %+v, want a conflict", from, on, m)
				}
			}
		}
	}
}

// C8: the most important promise, tested once more on its own.
func TestNext_AStartedDeploymentIsNeverPendingAgain(t *testing.T) {
	for _, on := range workflow.Events() {
		for _, f := range everyFacts() {
			if f.Type != workflow.Deployment {
				continue
			}
			if m, err := workflow.Next(workflow.Running, on, f); err == nil && (m.To == workflow.Pending || m.To == workflow.Claimed) {
				t.Fatalf("%s makes a running deployment %s", on, m.To)
			}
		}
	}
}

func TestDiagram_StandsInTheArchitecture(t *testing.T) {
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := workflow.Diagram(); !strings.Contains(string(doc), got) {
		t.Errorf("ARCHITECTURE.md does not hold the diagram that the table draws:\n%s", got)
	}
}

func TestChecks_NamesThatBreakTheRuleAreRefused(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, name := range []string{"", "ab", "pool_a", "a b", "a/b", "ä-ö-ü", long, "../etc", "a\x00b"} {
		err := workflow.CheckPoolName(name)
		var refusal *workflow.Error
		if !errors.As(err, &refusal) || !errors.Is(err, workflow.ErrInvalid) || refusal.Field != "name" {
			t.Errorf("CheckPoolName(%q) = %v, want a refusal of the name", name, err)
		}
	}
	for _, name := range []string{"abc", "A_b-9", "pool-a", strings.Repeat("x", 64)} {
		if err := workflow.CheckPoolName(name); err != nil {
			t.Errorf("CheckPoolName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "-a", "_a", "a/b", long, "ws_a", "wf_01k1xz4m2p7q9r3s5t8v"} {
		if err := workflow.CheckWorkspaceName(name); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("CheckWorkspaceName(%q) = %v, want a refusal", name, err)
		}
	}
	for _, name := range []string{"a", "9", "net-prod_1", "ws-a", "ws", "news_1"} {
		if err := workflow.CheckWorkspaceName(name); err != nil {
			t.Errorf("CheckWorkspaceName(%q) = %v", name, err)
		}
	}
}

func TestCheckText_RefusesControlCharactersByPosition(t *testing.T) {
	for in, want := range map[string]string{
		"two\r\nlines\t of é 👩\u200d🚀": "", strings.Repeat("x", 20): "", strings.Repeat("x", 31): "it has 31 bytes, at most 30 are taken",
		"a\x1b[2J": "U+001B at byte 1", "\x00": "U+0000 at byte 0", "é\u0085": "U+0085 at byte 2", "\xff": "not UTF-8", "\x7f": "U+007F",
	} {
		err := workflow.CheckText("description", in, 30)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestNoID_ProposesANameThatBeginsAsNoIDDoes(t *testing.T) {
	for name, want := range map[string]string{"net": "net", "ws_net": "ws-net", "pool_a_b": "pool-a_b", "": ""} {
		if got := workflow.NoID(name); got != want || workflow.CheckNoID(got) != nil {
			t.Errorf("NoID(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestRefuse_KeepsItsSentinelWhenWrapped(t *testing.T) {
	err := fmt.Errorf("start job x: %w", workflow.Refuse(workflow.ErrOver, "", "attempt %d is over", 2))
	if !errors.Is(err, workflow.ErrOver) || !strings.Contains(err.Error(), "attempt 2 is over") {
		t.Errorf("got %v", err)
	}
}
