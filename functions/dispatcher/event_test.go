package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
)

func sample(t *testing.T, name string) events.SQSEvent {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "events", name))
	if err != nil {
		t.Fatal(err)
	}
	var e events.SQSEvent
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMessages_ReadTheSampleEvents(t *testing.T) {
	for name, want := range map[string][]int{"sqs-jobs.json": {1, 7}, "sqs-dead-letters.json": {201}} {
		msgs := messages(sample(t, name))
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
	if got := messages(events.SQSEvent{}); len(got) != 0 {
		t.Errorf("messages of nothing: %v", got)
	}
}

func TestResponse_IsWhatLambdaReads(t *testing.T) {
	for _, tc := range []struct {
		back []string
		want string
	}{
		{nil, `{"batchItemFailures":[]}`},
		{[]string{"a", "b"}, `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}`},
	} {
		got, err := json.Marshal(response(tc.back))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want %s", got, err, tc.want)
		}
	}
}
