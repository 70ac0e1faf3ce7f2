package topologytest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// TestReturnToFullQueue: a retry that returns to a full queue which refuses messages is lost where the finding is a
// warning, and is received once there is room, or kept until then, where it is a note.
func TestReturnToFullQueue(t *testing.T) {
	t.Parallel()
	classic, quorum := topology.TypeClassic, topology.TypeQuorum
	for _, c := range []struct{ own, wait, strategy string }{
		{classic, classic, ""}, {classic, quorum, "at-most-once"}, {classic, quorum, "at-least-once"},
		{quorum, classic, ""},
	} {
		t.Run(c.own+" from "+c.wait+" "+c.strategy, func(t *testing.T) {
			t.Parallel()
			args := amqp.Table{argDLX: "", argDLKey: ownQueue, argTTL: brief.Milliseconds()}
			if c.wait == quorum {
				args = with(args, "x-queue-type", quorum, "x-dead-letter-strategy", c.strategy, "x-overflow", "reject-publish")
			}
			limited := queue(ownQueue, "x-queue-type", c.own, "x-max-length", 2, "x-overflow", "reject-publish")
			s := shape{options: topology.Options{QueueType: c.wait}, given: append(limited, object{name: waitQueue, args: args})}
			s.full(t)
		})
	}
}

func (s *shape) full(t *testing.T) {
	plan, url := s.plan(t), brokertest.URL(t)
	s.declare(t, url)
	kept := judgementOf(t, url, plan, "x-max-length") == topology.Harmless
	fillers := fill(t, url)
	retried := message("returns")
	retried.Headers = amqp.Table{"x-retry-count": 1}
	brokertest.Publish(t, brokertest.Channel(t, url), "", waitQueue, retried)
	brokertest.WaitReady(t, url, waitQueue, 0)
	time.Sleep(500 * time.Millisecond) // what is refused cannot be waited for

	r := start(t, plan)
	r.acked(t, fillers...)
	// What the queue refused once waits for the broker's next try, which newer versions make after three minutes.
	var received, waiting int
	brokertest.Eventually(t, time.Minute, "the retry is received, waits, or is lost as judged", func() bool {
		received, waiting = len(r.app.Seen(retried.MessageId)), inQueue(t, waitQueue)
		return !kept || received+waiting == 1
	})
	r.stop()
	if list := r.app.Seen(retried.MessageId); !kept && len(list)+waiting > 0 || len(list) > 1 ||
		len(list) == 1 && list[0].Number("Amqp-Retry-Count") != 1 {
		t.Errorf("received %d times, kept: %v", len(list), kept)
	}
	brokertest.WaitReady(t, url, ownQueue, 0)
}

// judgementOf returns how a property of the service's queue is judged.
func judgementOf(t *testing.T, url string, plan *topology.Plan, property string) topology.Judgement {
	t.Helper()
	report := ensure(t, url, plan, topology.ModeDeclare)
	i := slices.IndexFunc(report.Findings, func(f declare.Finding) bool { return strings.Contains(f.Property, property) })
	if i < 0 || len(report.Blocking()) > 0 {
		t.Fatalf("%v", report.Findings)
	}
	return report.Findings[i].Judgement
}

// fill publishes to the service's queue until it refuses a message, and returns the ids of what it has taken.
func fill(t *testing.T, url string) (ids []string) {
	t.Helper()
	ch := brokertest.Channel(t, url)
	for {
		id := "filler-" + strconv.Itoa(len(ids))
		confirm := must.Get(ch.PublishWithDeferredConfirm("", ownQueue, true, false, message(id)))(t)
		if taken := must.Get(confirm.WaitContext(t.Context()))(t); !taken {
			return ids
		}
		ids = append(ids, id)
	}
}

// TestPausesAtALimit: a pause gives back what was received and not attempted. However often that happens, a delivery
// limit is not reached.
func TestPausesAtALimit(t *testing.T) {
	t.Parallel()
	for limit, pauses := range map[int]int{3: 6, 20: 22} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			s := shape{given: quorum(argLimit, limit)}
			plan, url := s.plan(t), brokertest.URL(t)
			s.declare(t, url)
			r := start(t, plan)
			gate := make(chan struct{})
			ids := named("paused", 3*concurrency)
			for _, id := range ids {
				r.app.On(id, apptest.Held(gate, status(http.StatusOK)))
			}
			r.consumes(t)
			r.send(t, ids...)
			for range pauses {
				r.consumes(t)
				brokertest.WaitReady(t, url, ownQueue, 0)
				r.flow.Hold(flow.Topology, "a pause")
				brokertest.Eventually(t, patience, "the sidecar pauses", func() bool { return !r.consumer.Active() })
				r.flow.Lift(flow.Topology)
			}
			close(gate)
			r.acked(t, ids...)
			for _, id := range ids {
				r.receipts(t, id, 0)
			}
		})
	}
}
