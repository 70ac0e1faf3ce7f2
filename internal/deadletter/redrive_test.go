package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

var presets = map[string]func(*topology.Options){
	"fanout": nil,
	"per-queue": func(o *topology.Options) {
		o.Preset, o.Bindings = topology.PresetPerQueue, bindings("domain.events")
	},
	"delay-ladder": func(o *topology.Options) {
		o.Preset, o.Exchange, o.Bindings = topology.PresetDelayLadder, o.Service+".events", bindings(o.Service+".events")
	},
}

func bindings(exchange string) []topology.Binding {
	return []topology.Binding{{Exchange: exchange, Key: "x.*"}}
}

func (r *rig) redrive(o Redrive) Progress {
	r.t.Helper()
	p := must.Get(r.Redrive(r.t.Context(), o, nil))(r.t)
	return p
}

// TestWayBack: a parked message goes where the plan says, says who moved it, and goes on counting or
// begins anew.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for name, change := range presets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			first := r.parked("one", amqp.Table{
				"tenant": "acme", "x-retry-count": int32(3), "x-redriven-count": int32(1), "x-redriven-reply-to": "old",
				"x-death": []any{amqp.Table{"queue": r.plan.Queue, "reason": "rejected", "count": int64(4), "exchange": "orders", "routing-keys": []any{"order.created"}, "time": time.Unix(1700000000, 0)}},
			})
			first.CorrelationId, first.ReplyTo, first.Priority, first.Timestamp, first.Type, first.AppId, first.ContentEncoding = "c", "answers", 3, time.Unix(1700000000, 0), "type", "app", "gzip"
			r.park(first, first)
			if p := r.redrive(Redrive{Selection: Selection{Limit: 1}}); p.Done != 1 || p.Matched != 1 || p.Total != 2 {
				t.Fatalf("%+v", p)
			}
			r.redrive(Redrive{Reset: true})
			got := r.drain(r.plan.Redrive.Queue)
			if len(got) != 2 {
				t.Fatalf("%d messages in %s", len(got), r.plan.Redrive.Queue)
			}
			for i, d := range got {
				if d.MessageId != "one" || string(d.Body) != string(first.Body) || d.CorrelationId != "c" || d.ReplyTo != "answers" || d.Priority != 3 ||
					!d.Timestamp.Equal(first.Timestamp) || d.Type != "type" || d.AppId != "app" || d.ContentEncoding != "gzip" || d.Headers["tenant"] != "acme" || d.DeliveryMode != amqp.Persistent {
					t.Errorf("%d is another message: %+v", i, d)
				}
				h := d.Headers
				if at, err := time.Parse(time.RFC3339, fmt.Sprint(h["x-redriven-at"])); err != nil || time.Since(at) > time.Hour {
					t.Errorf("x-redriven-at %v", h["x-redriven-at"])
				}
				if h["x-redriven-by"] != "operator" || h["x-redriven-count"] != int32(2) || h["x-redriven-from"] != r.name || h["x-redriven-reply-to"] != nil {
					t.Errorf("%v", h)
				}
				var m message.Message
				m.FromDelivery(&d, r.plan.Queue, r.plan.MaxRetries)
				if m.Exchange != "orders" || m.RoutingKey != "order.created" {
					t.Errorf("%d comes from %q with %q", i, m.Exchange, m.RoutingKey)
				}
				if i == 0 && (m.RetryCount != 10 || h["x-death"] == nil || h["x-final-reason"] != "max_retries" || m.Malformed) {
					t.Errorf("does not go on counting: %d %v", m.RetryCount, h)
				}
				if i == 1 && (m.RetryCount != 0 || h["x-death"] != nil || h["x-final-retry-count"] != nil || h["x-final-reason"] != nil) {
					t.Errorf("does not begin anew: %d %v", m.RetryCount, h)
				}
			}
			if n := brokertest.Ready(t, r.url, r.name); n != 0 {
				t.Errorf("%d left in the dead-letter queue", n)
			}
		})
	}
}

func TestSelection(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	other := r.parked("foreign", amqp.Table{"x-original-queue": "another.queue"})
	other.Headers["x-final-status-code"] = int32(409)
	r.park(append(r.numbered(10), other, r.parked("odd", amqp.Table{"x-final-status-code": int32(409)}))...)
	odd := Selection{Filter: filter(t, "status", "409")}
	for _, act := range []func() (Progress, error){
		func() (Progress, error) {
			return r.Redrive(t.Context(), Redrive{Selection: odd, DryRun: true, Canary: 3}, nil)
		},
		func() (Progress, error) { return r.Discard(t.Context(), Discard{Selection: odd, DryRun: true}, nil) },
	} {
		if p, err := act(); err != nil || p.Matched != 1 || p.Skipped != 1 || p.Done != 0 || p.Scanned != 12 {
			t.Errorf("%+v %v", p, err)
		}
	}
	if n := brokertest.Ready(t, r.url, r.name); n != 12 {
		t.Fatalf("a dry run has left %d", n)
	}
	if p := r.redrive(Redrive{Selection: odd}); p.Done != 1 || p.Skipped != 1 {
		t.Errorf("%+v", p)
	}
	if p := r.redrive(Redrive{Selection: Selection{Limit: 4}, Rate: "1000"}); p.Done != 4 || p.Matched != 4 {
		t.Errorf("%+v", p)
	}
	if got := ids(r.drain(r.plan.Queue)); !slices.Equal(got[:1], []string{"odd"}) || len(got) != 5 {
		t.Errorf("moved %v", got)
	}
	if p, err := r.Discard(t.Context(), Discard{}, nil); err != nil || p.Done != 6 || p.Skipped != 1 {
		t.Errorf("%+v %v", p, err)
	}
	if got := ids(r.drain(r.name)); !slices.Equal(got, []string{"foreign"}) {
		t.Errorf("left %v", got)
	}
}

func TestRedriveRefuses(t *testing.T) {
	t.Parallel()
	plan := must.Get(topology.Build(topology.Options{Preset: topology.PresetFanout, Service: "svc"}))(t)
	q := New(Options{}, Owner{Plan: plan})[0]
	for _, c := range []struct {
		r    Redrive
		want string
	}{
		{Redrive{Canary: -1}, "between 0 and"},
		{Redrive{Canary: 1001}, "between 0 and"},
		{Redrive{To: "audit", Canary: 1}, "with canary"},
		{Redrive{Plain: true}, "together with to"},
		{Redrive{To: Target(plan.Queue)}, "uses itself"},
		{Redrive{To: Target(q.name)}, "uses itself"},
		{Redrive{To: Target(q.name + ".sidecar-lock")}, "uses itself"},
		{Redrive{To: Target(plan.Waits[0].Queue)}, "uses itself"},
		{Redrive{To: message.DirectReply + ".x"}, "uses itself"},
		{Redrive{To: Target(strings.Repeat("x", 256))}, "at most 255 bytes"},
	} {
		if _, err := q.Redrive(t.Context(), c.r, nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}

// TestRedriveToAnotherQueue: the chosen messages of this service go there as fresh ones. While there is no such queue,
// or the user may not write to it, all of them stay.
func TestRedriveToAnotherQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	foreign := r.parked("foreign", amqp.Table{"x-original-queue": "another.queue"})
	r.park(append(r.numbered(20), foreign)...)
	p, err := r.Redrive(t.Context(), Redrive{To: "audit"}, nil)
	if !errors.Is(err, ErrStopped) || !strings.HasPrefix(err.Error(), `queue "audit" does not exist: `) || p.Done != 0 || p.Failed == 0 {
		t.Errorf("%+v %v", p, err)
	}
	theirs := r.as(".*", "^$", ".*")
	if p, err := theirs.Redrive(t.Context(), Redrive{To: "audit"}, nil); !errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), "403 ACCESS_REFUSED") || p.Done != 0 {
		t.Errorf("without the right: %+v %v", p, err)
	}
	r.kept(append(r.numbered(20), foreign))
	r.park(append(r.numbered(20), foreign)...) // kept has taken them
	brokertest.Queue(t, r.url, "audit", nil)
	if p := r.redrive(Redrive{To: "audit", DryRun: true}); p.Matched != 20 || p.Done != 0 {
		t.Errorf("%+v", p)
	}
	if p := r.redrive(Redrive{To: "audit", Selection: Selection{Limit: 15}}); p.Done != 15 {
		t.Errorf("%+v", p)
	}
	moved := r.drain("audit")
	if got := ids(moved); len(got) != 15 || !slices.IsSorted(got) || string(moved[0].Body) != `{"id":"m0001"}` {
		t.Errorf("moved %v", got)
	}
	h := moved[0].Headers
	if h["x-redriven-from"] != r.name || h["x-original-routing-key"] != "order.created" || h["x-final-reason"] != nil || h["x-original-queue"] != nil {
		t.Errorf("%v", h)
	}
	if got := ids(r.drain(r.name)); len(got) != 6 || brokertest.Ready(t, r.url, r.plan.Queue) != 0 {
		t.Errorf("left %v", got)
	}
}

// TestNoWayBack: when the service's queue is gone nothing is moved, and nothing is lost.
func TestNoWayBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	list := r.numbered(100)
	r.park(list...)
	must.Get(brokertest.Channel(t, r.url).QueueDelete(r.plan.Queue, false, false, false))(t)
	registry := prometheus.NewRegistry()
	r.o.Registerer = registry
	q := New(r.o, r.Owners...)[0]
	if p, err := r.Redrive(t.Context(), Redrive{Canary: 2}, nil); !errors.Is(err, broker.ErrUnroutable) || p.Done != 0 {
		t.Errorf("a canary that cannot be sent: %+v %v", p, err)
	}
	p, err := q.Redrive(t.Context(), Redrive{}, nil)
	if !errors.Is(err, ErrStopped) || !errors.Is(err, broker.ErrUnroutable) || p.Done != 0 || p.Failed == 0 {
		t.Errorf("%+v %v", p, err)
	}
	r.kept(list)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP sidecar_redriven_total Parked messages moved back into the flow (ok) or left parked because the move failed (failed).
# TYPE sidecar_redriven_total counter
sidecar_redriven_total{result="failed"} %d
sidecar_redriven_total{result="ok"} 0
`, p.Failed))); err != nil {
		t.Error(err)
	}
}

// TestNoRoomForMoreHeaders: a message that cannot carry the headers of a redrive stays, and the others go.
func TestNoRoomForMoreHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	full := r.parked("full", amqp.Table{"big": strings.Repeat("x", 130_700)})
	r.park(r.parked("a", nil), full, r.parked("b", nil))
	var log bytes.Buffer
	r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if p := r.redrive(Redrive{}); p.Done != 2 || p.Failed != 1 {
		t.Errorf("%+v", p)
	}
	if got := ids(r.drain(r.name)); !slices.Equal(got, []string{"full"}) {
		t.Errorf("left %v", got)
	}
	if !strings.Contains(log.String(), "message_id=full") {
		t.Errorf("log: %s", &log)
	}
}

// nothingLost waits until every message is parked, or moved, or both.
func (r *rig) nothingLost(n int) {
	r.t.Helper()
	all := map[string]bool{}
	brokertest.Eventually(r.t, time.Minute, "every message somewhere", func() bool {
		for _, d := range append(r.drain(r.plan.Queue), r.drain(r.name)...) {
			all[d.MessageId] = true
		}
		return len(all) == n
	})
}

// TestCut: whatever moment the connections break in, every message is parked, or on its way, or both.
func TestCut(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []func(*topology.Options){nil, quorum}[round%2])
			n, rate := 250, Rate("400")
			if round > 2 { // many are written, confirmed and acked at once
				n, rate = 3000, "5000"
			}
			r.park(r.numbered(n)...)
			q, proxy := r.through()
			var cut sync.Once
			p, err := q.Redrive(t.Context(), Redrive{Rate: rate}, func(p Progress) {
				if p.Done > 30*round {
					cut.Do(proxy.Cut)
				}
			})
			if !errors.Is(err, ErrStopped) {
				t.Errorf("%+v, %v", p, err)
			}
			r.nothingLost(n)
		})
	}
}
