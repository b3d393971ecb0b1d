package cloud_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/runner/cloud"
)

// The answer of the endpoint, shortened (ECS developer guide, "Task metadata endpoint version 4").
const taskAnswer = `{"Cluster":"pool","TaskARN":"` + arn + `","Family":"runner","Revision":"7","DesiredStatus":"RUNNING","KnownStatus":"RUNNING",` +
	`"Limits":{"CPU":1,"Memory":2048},"LaunchType":"FARGATE","Containers":[{"DockerId":"x","Name":"runner"}]}`

func TestTask_AsksTheMetadataEndpointAFewTimes(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v4/0123/task" || r.Method != http.MethodGet {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		switch asked++; asked {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			_, _ = io.WriteString(w, `{"Cluster":"pool"}`)
		default:
			_, _ = io.WriteString(w, taskAnswer)
		}
	}))
	defer server.Close()
	got, err := cloud.Task(t.Context(), server.URL+"/v4/0123")
	if err != nil || got != arn || asked != 3 {
		t.Errorf("got %q, %v after %d times", got, err, asked)
	}
}

func TestTask_GivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for six seconds")
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	if got, err := cloud.Task(t.Context(), server.URL+"/v4/the-secret-id"); err == nil || asked != 6 || strings.Contains(err.Error(), "the-secret-id") {
		t.Errorf("got %q, %v after %d times", got, err, asked)
	}
	for _, address := range []string{"", "169.254.170.2", "file:///etc/passwd", "http://"} {
		if _, err := cloud.Task(t.Context(), address); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}

func FuzzParseTask(f *testing.F) {
	for _, s := range []string{taskAnswer, `{}`, `null`, `[]`, `{"TaskARN":5}`, `{"TaskARN":"arn:aws:ecs:us-east-1:123456789012:task/x"}`, `{"TaskARN":"` + arn + `\n"}`, `{"taskarn":"` + arn + `"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := cloud.ParseTask(in)
		if err != nil {
			if got != "" || !utf8.ValidString(err.Error()) || len(err.Error()) > 2000 {
				t.Errorf("got %q, %v", got, err)
			}
			return
		}
		if strings.ContainsAny(got, " \r\n\t\"") || strings.Count(got, "/") != 2 || len(got) > 512 {
			t.Errorf("took %q", got)
		}
		if again, err := cloud.ParseTask([]byte(`{"TaskARN":` + quote(t, got) + `}`)); err != nil || again != got {
			t.Errorf("%q does not read back: %q, %v", got, again, err)
		}
	})
}

func quote(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
