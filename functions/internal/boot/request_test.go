package boot_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
)

// Each line says which invocation wrote it, also one that is logged without a context; a line that names its request
// itself keeps that.
func TestBegan_EachLineNamesItsInvocation(t *testing.T) {
	var out strings.Builder
	e := boot.Read(env())
	log := e.Log(&out)
	lines := func() (got []map[string]any) {
		for line := range strings.Lines(out.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			delete(m, "time")
			delete(m, "level")
			got = append(got, m)
		}
		out.Reset()
		return got
	}
	log.Info("cold")
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "lambda-1"})
	boot.Began(ctx, log, "")
	log.With("stage", "relay").Info("swept")
	boot.Began(ctx, log, "api-1")
	log.InfoContext(ctx, "answered")
	log.Info("served", "request_id", "of-the-caller")
	boot.Began(t.Context(), log, "") // not in Lambda
	log.Info("elsewhere")
	want := []map[string]any{
		{"msg": "cold"},
		{"msg": "swept", "stage": "relay", "request_id": "lambda-1"},
		{"msg": "answered", "request_id": "api-1", "invocation_id": "lambda-1"},
		{"msg": "served", "request_id": "of-the-caller", "invocation_id": "lambda-1"},
		{"msg": "elsewhere"},
	}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Error(diff)
	}
}
