package boot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var _ poller.Queue = (*boot.Outbox)(nil)

func TestOutbox_SendsWhatTheQueueTakesAndCountsIt(t *testing.T) {
	d := deliver(t) // which has one message
	out := boot.NewOutbox(d.cfg, d.url)
	if errs := out.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("b"), Group: "default"}, {Body: []byte("c"), Delay: 29*time.Second + 1}}); errs != nil {
		t.Fatal(errs)
	}
	if n, err := out.Depth(t.Context()); n != 2 || err != nil {
		t.Errorf("%d wait, %v; want two, and the one that is delayed not counted", n, err)
	}
	for i, want := range []bool{true, true, false} {
		if got := d.receive(t) != ""; got != want {
			t.Errorf("message %d comes at once: %t, want %t", i, got, want)
		}
	}
	if n, err := out.Depth(t.Context()); n != 2 || err != nil {
		t.Errorf("%d are held, %v; want those that were received", n, err)
	}
	for _, c := range []struct {
		after time.Duration
		comes bool
	}{{29 * time.Second, false}, {time.Second, true}} {
		d.now = d.now.Add(c.after)
		if got := d.receive(t) != ""; got != c.comes {
			t.Errorf("the delayed message comes: %t, want %t", got, c.comes)
		}
	}
}

func TestOutbox_SaysOfEachMessageWhyItWasNotTaken(t *testing.T) {
	d := deliver(t)
	out := boot.NewOutbox(d.cfg, d.url)
	errs := out.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("b")}, {}, {Body: []byte("bad \x01")}})
	if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] == nil || !strings.Contains(errs[2].Error(), "jobs") {
		t.Errorf("%v: want the second refused here and the third there", errs)
	}
	// A throttle is repeated; a broken answer, too, and the message may be there twice.
	for _, once := range []wire.Fault{{Before: wire.Fail(&wire.Error{Status: 400, Code: "ThrottlingException", Message: "slow down"})}, {After: wire.Fail(wire.Drop)}} {
		once.Service, once.Operation, once.Times = "sqs", "SendMessageBatch", 1
		d.server.Inject(once)
		if errs := out.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("b")}}); errs != nil {
			t.Error(errs)
		}
	}
	defer d.server.Inject(wire.Fault{Service: "sqs", Before: wire.Fail(&wire.Error{Status: 403, Code: "AccessDeniedException", Message: "no"})})()
	if errs := out.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte("b")}}); len(errs) != 1 || errs[0] == nil {
		t.Errorf("%v: want it refused", errs)
	}
	if _, err := out.Depth(t.Context()); err == nil {
		t.Error("a depth without permission")
	}
}
