package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// TestDLQRedriveReset gives full fresh attempts, to the messages that are named and to no others.
func TestDLQRedriveReset(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1")
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	s := sc.run()
	sc.send("a", "b")
	eventually(t, "two parked messages", func() bool { return sc.ready(sc.dlq()) == 2 })
	if d := sc.acted("redrive", "a", "--reset"); d.Done != 1 || d.Matched != 1 || d.Action != "redrive" || d.Queue != sc.dlq() {
		t.Errorf("%+v", d)
	}
	eventually(t, "two more attempts at a, and parked again", func() bool { return len(sc.app.seen("a")) == 4 && sc.ready(sc.dlq()) == 2 })
	for i, want := range []int{0, 1, 0, 1} {
		if got := sc.app.seen("a")[i].number("Amqp-Retry-Count"); got != want {
			t.Errorf("attempt %d has retry count %d, want %d", i+1, got, want)
		}
	}
	if n := len(sc.app.seen("b")); n != 2 {
		t.Errorf("b came %d times", n)
	}
	if r := sc.cli(1, "redrive", "a", "gone"); !strings.Contains(r.stderr, `no parked message "gone"`) {
		t.Errorf("%q", r.stderr)
	}
	if r := sc.cli(1, "redrive", "gone"); !strings.Contains(r.stderr, `"gone"`) {
		t.Errorf("%q", r.stderr)
	}
	eventually(t, "a parked again", func() bool { return len(sc.app.seen("a")) == 5 && sc.ready(sc.dlq()) == 2 })
	sc.settledAll(s, 2)
}

// TestDLQRedriveToAnotherQueue: another consumer gets the messages that are chosen by a text in their bodies.
func TestDLQRedriveToAnotherQueue(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.park(
		amqp.Publishing{MessageId: "a", CorrelationId: "order-1", Body: []byte(`{"sku":"WH-058"}`), Headers: amqp.Table{"x-final-reason": "max_retries", "x-retry-count": int32(3)}},
		amqp.Publishing{MessageId: "b", CorrelationId: "order-2", Body: []byte(`{"sku":"WH-059"}`)},
	)
	other := sc.prefix + ".inspect"
	if r := sc.cli(1, "redrive", "--text", "wh-058", "--to", other); !strings.Contains(r.stderr, "does not exist") || sc.ready(sc.dlq()) != 2 {
		t.Errorf("%s", r.all())
	}
	brokertest.Queue(t, brokertest.URL(t), other, nil)
	if r := sc.cli(0, "redrive", "--text", "wh-058", "--to", other); !strings.Contains(r.stdout, `1 of 2 messages redriven to "`+other+`"`) {
		t.Errorf("%s", r.all())
	}
	d := brokertest.Get(t, brokertest.URL(t), other, time.Minute)
	if d.MessageId != "a" || d.Headers["x-final-reason"] != nil || d.Headers["x-retry-count"] != nil || d.Headers["x-redriven-from"] != sc.dlq() {
		t.Errorf("%s %v", d.MessageId, d.Headers)
	}
	if r := sc.cli(0, "show", "b"); !strings.Contains(r.stdout, "  correlation id    order-2\n") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs("--correlation-id", "order-*"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("left %q", got)
	}
}

// TestDLQDryRunAndLimit: a dry run counts and moves nothing, a limit bounds what is moved.
func TestDLQDryRunAndLimit(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	sc.parkIDs(422, "d")
	for _, args := range [][]string{{"redrive", "--status", "503", "--dry-run"}, {"discard", "--status", "5xx", "--dry-run"}} {
		if d := sc.acted(args...); !d.DryRun || d.Matched != 3 || d.Done != 0 || d.Total != 4 {
			t.Errorf("%v: %+v", args, d)
		}
	}
	if d := sc.acted("discard", "--all", "--dry-run"); d.Matched != 4 || d.Done != 0 {
		t.Errorf("%+v", d)
	}
	if r := sc.cli(0, "redrive", "--all", "--dry-run"); !strings.Contains(r.stdout, "4 of 4 messages would be redriven; nothing was changed") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Fatalf("%q", got)
	}
	if d := sc.acted("redrive", "--all", "--limit", "2", "--rate", "1000/s"); d.Done != 2 {
		t.Errorf("%+v", d)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"c", "d"}) || sc.ready(sc.queue()) != 2 {
		t.Errorf("%q, and %d in the service's queue", got, sc.ready(sc.queue()))
	}
	if d := sc.acted("redrive", "--status", "599"); d.Done != 0 || d.Matched != 0 || d.Total != 2 {
		t.Errorf("nothing matches: %+v", d)
	}
}
