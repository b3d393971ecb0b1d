// Command player is what the test's containers run: a task that is played, or one that looks for what a task
// of ECS is told of itself.
package main

import (
	"encoding/json"
	"net/http"
	"os"

	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
)

func main() {
	code, ok := launchertest.Play()
	if !ok {
		code = look()
	}
	os.Exit(code)
}

// look asks for the task's name and its role.
func look() int {
	var task struct{ TaskARN string }
	if !get(os.Getenv("ECS_CONTAINER_METADATA_URI_V4")+"/task", &task) || task.TaskARN == "" {
		return 11
	}
	address := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		address = "http://169.254.170.2" + path
	}
	var role struct{ RoleArn, Token string }
	if !get(address, &role) || role.RoleArn != os.Getenv("WANT_ROLE") || role.Token == "" {
		return 12
	}
	if os.WriteFile("/work/file", nil, 0o600) != nil {
		return 13
	}
	if os.WriteFile("/file", nil, 0o600) == nil {
		return 14 // the root can be written
	}
	_, _ = os.Stdout.WriteString("I am " + task.TaskARN + "\n")
	return 0
}

func get(address string, out any) bool {
	resp, err := http.Get(address) //nolint:gosec,noctx // its only work
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(out) == nil
}
