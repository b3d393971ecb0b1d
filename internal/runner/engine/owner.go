package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// claimStates asks whether the run of an id may change states, or take them over. A run that only reads gets a line in its
// log about states of other workspaces.
func claimStates(ctx context.Context, h Host, id string, readOnly bool, states ...api.StateRef) error {
	others, err := h.WhoseStates(ctx, states)
	if err != nil || len(others) == 0 {
		return err
	}
	said := othersStates(others)
	if readOnly {
		h.Logf("WARNING: %s. A run that changes it will be refused", said)
		return nil
	}
	return &Failure{
		Reason: workflow.ReasonStateOwned, Err: workflow.ErrConflict,
		Detail: text.Middle(said+"; nothing was changed. Two workspaces must not change one state: go on with the other one, "+
			"delete one of the two, or have an admin of both decide with dayfly repair own "+id, maxDetail),
	}
}

// othersStates names the owners of states. It is a pure function.
func othersStates(others []api.OthersState) string {
	first := others[0]
	owner := "another workspace"
	if first.Workspace != "" {
		owner = "workspace " + first.Workspace
	}
	switch {
	case first.Unit != "" && len(others) > 1:
		return fmt.Sprintf("the state of unit %s is that of %s, and those of %d more units are other workspaces' too", first.Unit, owner, len(others)-1)
	case first.Unit != "":
		return fmt.Sprintf("the state of unit %s is that of %s", first.Unit, owner)
	case first.Lineage != "":
		return fmt.Sprintf("the state (lineage %s) is that of %s", first.Lineage, owner)
	}
	return "the place of the state is that of " + owner
}

// reaching are the settings of a backend, and the variables in place of them, that name its server. Backends that
// placing covers are not listed.
var reaching = map[string]map[string][]string{
	"s3":         {"endpoint": {"AWS_ENDPOINT_URL_S3", "AWS_S3_ENDPOINT", "AWS_ENDPOINT_URL"}},
	"http":       {"address": {"TF_HTTP_ADDRESS"}},
	"consul":     {"address": {"CONSUL_HTTP_ADDR"}},
	"pg":         {"conn_str": {"PG_CONN_STR"}, "host": {"PGHOST"}, "port": {"PGPORT"}, "database": {"PGDATABASE"}},
	"kubernetes": {"host": {"KUBE_HOST", "KUBERNETES_SERVICE_HOST"}, "config_path": {"KUBE_CONFIG_PATH"}, "config_paths": {"KUBE_CONFIG_PATHS"}, "config_context": {"KUBE_CTX"}},
	"azurerm":    {"environment": {"ARM_ENVIRONMENT"}},
	"remote":     {"organization": {"TF_CLOUD_ORGANIZATION"}, "hostname": {"TF_CLOUD_HOSTNAME"}},
	"cloud":      {"organization": {"TF_CLOUD_ORGANIZATION"}, "hostname": {"TF_CLOUD_HOSTNAME"}, "workspaces": {"TF_WORKSPACE"}},
}

// placeID is the SHA-256 of everything that identifies the place of a state. getenv may be nil.
func placeID(f api.StateFound, settings map[string]any, getenv func(string) string) string {
	all := []string{f.Backend, f.Settings, f.Workspace, f.Store}
	for _, setting := range slices.Sorted(maps.Keys(reaching[f.Backend])) {
		value, _ := settings[setting].(string)
		for _, name := range reaching[f.Backend][setting] {
			if value == "" && getenv != nil {
				value = getenv(name)
			}
		}
		all = append(all, withoutSecrets(value))
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return hex.EncodeToString(sum[:])
}

var connection = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(host|hostaddr|port|dbname)\s*=\s*('[^']*'|\S+)`)
})

// withoutSecrets returns an address without its credentials: of a URL its host and path, of a connection string its
// host, port and database.
func withoutSecrets(value string) string {
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host + u.Path
	}
	if all := connection().FindAllString(value, -1); len(all) > 0 {
		return strings.Join(all, " ")
	}
	if strings.Contains(value, "=") { // a connection string that leads to where it leads by default
		return ""
	}
	return value
}
