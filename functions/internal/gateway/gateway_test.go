package gateway_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/dayfly-dev/dayfly/functions/internal/gateway"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestHeaders_DropsTheAdaptersOwn(t *testing.T) {
	in := map[string]string{"X-GoLambdaProxy-ApiGw-Context": "1", "x-golambdaproxy-anything": "1", "X-GOLAMBDAPROXY-APIGW-STAGEVARS": "1", "A": "1"}
	if got := gateway.Headers(in); !maps.Equal(got, map[string]string{"A": "1"}) {
		t.Errorf("got %v", got)
	}
	if len(in) != 4 {
		t.Error("the event was changed")
	}
	if got := gateway.Headers[string](nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestBody_IsAsItWasSent(t *testing.T) {
	for _, tt := range []struct {
		in      string
		encoded bool
		want    string
	}{{"e30=", true, "{}"}, {"e30=", false, "e30="}, {"", true, ""}} {
		if got, err := gateway.Body(tt.in, tt.encoded); err != nil || got != tt.want {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	if _, err := gateway.Body("%", true); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("broken: %v", err)
	}
}
