package gateway_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
)

// The example of the developer guide.
func TestRoute(t *testing.T) {
	routes := map[string]bool{"GET /pets/dog/1": true, "GET /pets/dog/{id}": true, "GET /pets/{proxy+}": true, "ANY /{proxy+}": true, "$default": true}
	for asked, want := range map[[2]string]string{
		{"GET", "/pets/dog/1"}: "GET /pets/dog/1", {"GET", "/pets/dog/2"}: "GET /pets/dog/{id}", {"GET", "/pets/cat/1"}: "GET /pets/{proxy+}",
		{"POST", "/test/5"}: "ANY /{proxy+}", {"POST", "/pets/dog/1"}: "ANY /{proxy+}",
	} {
		if got := gateway.Route(routes, asked[0], asked[1]); got != want {
			t.Errorf("%s goes by %q, want %q", asked, got, want)
		}
	}
	if got := gateway.Route(map[string]bool{"GET /pets": true}, "GET", "/pets/dog"); got != "$default" {
		t.Errorf("got %q", got)
	}
}
