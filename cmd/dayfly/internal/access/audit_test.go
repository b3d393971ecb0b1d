package access

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestAudit_VerifyAfterAllOfItIsPastTheRetention(t *testing.T) {
	var b bytes.Buffer
	a := &cli.App{Stdout: &b, Output: "table"}
	if err := auditReport(a, api.AuditReport{First: 8, Last: 7}, api.SealPage{First: 8, Last: 7}, 0); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "nothing is sealed yet") || !strings.Contains(got, "all 7 are past the retention") {
		t.Errorf("got %s", got)
	}
}
