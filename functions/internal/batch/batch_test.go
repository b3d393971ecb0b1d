package batch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/batch"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

func sample(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "events", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestDecode_ReadsTheSampleEvents(t *testing.T) {
	for name, want := range map[string][]int{"sqs-jobs.json": {1, 7}, "sqs-dead-letters.json": {201}} {
		msgs, err := batch.Decode(sample(t, name))
		if err != nil {
			t.Fatal(err)
		}
		var receives []int
		for _, m := range msgs {
			receives = append(receives, m.Receives)
			if m.ID == "" || m.Receipt == "" {
				t.Errorf("%s: %+v has no id or no receipt", name, m)
			}
		}
		if d := cmp.Diff(want, receives); d != "" {
			t.Errorf("%s: receive counts (-want +got):\n%s", name, d)
		}
		m, err := api.DecodeLaunchMessage(msgs[0].Body)
		if err != nil || m.Job != "wf_01" || m.Attempt != 1 {
			t.Errorf("%s: %v, %v", name, m.Job, err)
		}
	}
}

// An answer to them would say that all is done.
func TestDecode_RefusesWhatIsNoBatch(t *testing.T) {
	for _, raw := range []string{
		"", "null", "[]", "{}", `{"Records":null}`, `{"Records":[]}`, `{"Records":[{}]}`, `{"Records":7}`,
		`{"Records":[{"messageId":"a","eventSource":"aws:sns"}]}`,
		`{"Records":[{"messageId":"a","eventSource":"aws:sqs"},{"messageId":"","eventSource":"aws:sqs"}]}`,
		`{"Records":[{"messageId":"a","eventSource":"aws:sqs"},{"eventSource":"aws:sqs"}]}`,
		string(sample(t, "schedule.json")), string(sample(t, "ecs-task-stopped.json")), string(sample(t, "http-api-claim.json")),
	} {
		if msgs, err := batch.Decode([]byte(raw)); err == nil {
			t.Errorf("%q was taken for %d messages", raw, len(msgs))
		}
	}
}

func TestAnswer_IsWhatLambdaReads(t *testing.T) {
	for _, tc := range []struct {
		again []queue.Message
		want  string
	}{
		{nil, `{"batchItemFailures":[]}`},
		{[]queue.Message{{ID: "a"}, {ID: "b"}}, `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}`},
	} {
		got, err := json.Marshal(batch.Answer(tc.again))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want %s", got, err, tc.want)
		}
	}
}

// Whatever the event, the answer about all of its messages names each, and none with an empty name.
func FuzzDecode(f *testing.F) {
	f.Add(sample(f, "sqs-jobs.json"))
	f.Add([]byte(`{"Records":[{"messageId":"a","eventSource":"aws:sqs"},{"eventSource":"aws:sqs"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		msgs, err := batch.Decode(raw)
		if err != nil {
			return
		}
		named := batch.Answer(msgs).BatchItemFailures
		if len(named) == 0 || len(named) != len(msgs) {
			t.Errorf("%q: %d of %d messages are named", raw, len(named), len(msgs))
		}
		for _, one := range named {
			if one.ItemIdentifier == "" {
				t.Errorf("%q: an empty name", raw)
			}
		}
	})
}
