package upgrade_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	keys "github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// kinds are the kinds of record that this version stores: the function that makes their key, and the beginnings of
// part and sort key of those that are in its recording.
var kinds = []string{
	"ActiveKey active/", "AppliedKey org/|applied/", "ApprovalKey org/|approval/", "ArtifactKey wf/|artifact/",
	"AttemptKey wf/|attempt/", "AuditKey audit/", "AwaitedKey review/", "BeatKey wf/|beat",
	"CarriedKey org/|carried/", "ClaimKey claim/pool: claim/runner: claim/labels:", "ClientKey client/|client",
	"ClockKey pass|clock", "ClosedKey closed/", "CutKey cut/", "CycleKey planned/|cycle",
	"DeletedKey org/|deleted/", "DeliveriesKey pool/|deliveries", "DeliveryKey delivery/", "DueKey deliver/",
	"EventKey wf/|ev/", "ForwardedKey pass|forwarded/", "FreedKey freed/", "GivenKey wf/|given/",
	"GoneScheduleKey org/|schedule-gone/", "GraphKey org/|graph", "HeldToKey wf/|policies/", "HoldKey pool/|hold",
	"HookKey hook/", "IdempotencyKey idem/", "IssuerURLKey org/|issuerurl/", "LineageKey org/|owner/lineage/",
	"LogKey wf/|log/", "OpenTreeKey tree-open/", "OrganizationKey orgs|", "OrganizationLimitKey limit/|org",
	"OutboxKey outbox/", "PlaceKey org/|owner/place/", "PlacesKey pass|places", "PlannedKey planned/|ws_",
	"PoliciesKey org/|policies", "PoolCallKey pool/|call", "PoolKey org/|pool/", "PoolLimitKey limit/|pool/",
	"PoolNameKey org/|poolname/", "PrincipalKey org/|principal/", "ProducedKey org/|produced/",
	"ProjectKey org/|project/", "PullKey pull/", "PurgedKey pass|purged/", "QueueKey lane/|lane",
	"ReaderKey wf/|reader", "RefusedKey wf/|refused", "ReroutingKey limit/|rerouting", "ResultKey wf/|result/",
	"ReviewKey wf/|review", "RoutesKey org/|routes", "RunTreeKey tree/", "RunnerKey pool/|runner/",
	"SchedulePlaceKey pass|schedules/", "SealKey seal/", "SealedKey pass|sealed/", "ServiceKey org/|service/",
	"SessionKey session/|session", "ShortTokenKey org/|short/", "SoleKey pool/|sole", "SpecKey wf/|spec",
	"StateKey org/|state/", "StepKey wf/|step/", "StuckKey stuck/", "TimerKey timer/|l/ timer/|p/ timer/|s/",
	"TokenIDKey org/|token/", "TokenKey token/|token", "TreeKey org/|tree", "WaitKey lane/|wait/c/ lane/|wait/o/",
	"WakeKey pool/|wake", "WakeTargetKey pool/|wake-target", "WorkflowKey wf/|wf", "WorkspaceKey org/|workspace/",
}

// unrecorded are functions without a kind of their own in the recording.
var unrecorded = map[string]string{
	"CursorKey": "a claim leaves it that has passed over 1,000 runs which the pool may not claim",
	"place":     "as ClaimKey, of the ledger",
	"Promote":   "as WaitKey, of the ledger",
}

// makers are the functions of the control plane that put a key together.
func makers(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir("../../internal/controlplane", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && makesKey(f) {
				out = append(out, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func makesKey(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && len(lit.Elts) > 0 {
			s, ok := lit.Type.(*ast.SelectorExpr)
			found = found || ok && s.Sel.Name == "Key"
		}
		return !found
	})
	return found
}

// A record of a kind that the recording lacks would not be held to anything.
func TestFixtures_HoldEveryKindOfRecord(t *testing.T) {
	records, all := lines[stored](t, recorded, "records.jsonl"), makers(t)
	table := kinds
	for _, k := range kind.Settings() {
		table = append(table, "SettingsKey org/|"+keys.SettingsPrefix(k.Name))
	}
	known := slices.Collect(maps.Keys(unrecorded))
	for _, line := range table {
		fields := strings.Fields(line)
		known = append(known, fields[0])
		for _, kind := range fields[1:] {
			part, sort, _ := strings.Cut(kind, "|")
			if !slices.ContainsFunc(records, func(r stored) bool { return strings.HasPrefix(r.Part, part) && strings.HasPrefix(r.Sort, sort) }) {
				t.Errorf("no record of the kind %s, whose key %s makes", kind, fields[0])
			}
		}
	}
	for _, name := range all {
		if !slices.Contains(known, name) {
			t.Errorf("%s makes a key: give its kind of record an entry in kinds, and a record in the recording", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(all, name) {
			t.Errorf("there is no %s that makes a key", name)
		}
	}
}

func TestFixtures_HoldEveryState(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		records := lines[stored](t, dir, "records.jsonl")
		states := map[string]int{}
		for _, r := range records {
			if r.Sort != "wf" {
				continue
			}
			var w struct {
				State  string
				Reason string
				Held   bool `json:"slot_held"`
				Cancel string
				Handed string
			}
			if err := json.Unmarshal(r.Value, &w); err != nil {
				t.Fatal(err)
			}
			states[w.State]++
			states[w.State+" "+w.Reason]++
			for name, is := range map[string]bool{"slot held": w.Held, "cancel asked": w.Cancel != "", "handed over": w.Handed != ""} {
				if is {
					states[w.State+", "+name]++
				}
			}
		}
		for _, want := range []string{
			"pending", "claimed, slot held", "running, slot held", "running, cancel asked", "running, handed over", "succeeded", "cancelled cancelled",
			"failed, slot held", "failed runner_lost", "failed step_failed", "failed expired_in_queue", "failed never_started", "failed launch_failed",
		} {
			if states[want] == 0 {
				t.Errorf("no workflow is %s: %v", want, states)
			}
		}
	})
}
