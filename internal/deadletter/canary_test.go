package deadletter

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestCanaryNeedsAnAddress: a user who may not publish to the default exchange, through which verdicts come, gets an error
// so, and nothing is moved without them.
func TestCanaryNeedsAnAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *topology.Options) {
		o.Preset, o.Bindings = topology.PresetPerQueue, []topology.Binding{{Exchange: "domain.events", Key: o.Service}}
	})
	r.park(r.numbered(5)...)
	p := r.plan.Permissions(topology.ModeVerify)
	q := r.as(p.Configure, p.Write, p.Read)
	done, err := q.Redrive(t.Context(), Redrive{Canary: 2}, nil)
	if refused, ok := errors.AsType[*broker.RefusedError](err); !ok || refused.Code != 403 || done.Done != 0 {
		t.Errorf("%+v %v", done, err)
	}
	brokertest.WaitReady(t, r.url, r.name, 5)
	if done, err = q.Redrive(t.Context(), Redrive{}, nil); err != nil || done.Done != 5 {
		t.Errorf("without a canary: %+v %v", done, err)
	}
}

// TestCanaryThroughARetryQueue: what is sent ahead waits there first, and has its time after that.
func TestCanaryThroughARetryQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *topology.Options) {
		o.Preset, o.RetryDelay, o.Bindings = topology.PresetPerQueue, time.Second, []topology.Binding{{Exchange: "domain.events", Key: o.Service}}
	})
	r.park(r.numbered(3)...)
	_, err := r.Redrive(t.Context(), Redrive{Canary: 3, CanaryTimeout: 200 * time.Millisecond}, nil)
	if !errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), "no verdict after 1.2s") {
		t.Error(err)
	}
}

// TestCanaryDoesNotWaitForWhatStays: a message that cannot be moved is not one of those sent ahead.
func TestCanaryDoesNotWaitForWhatStays(t *testing.T) {
	t.Parallel()
	q := &Queue{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	o := &operation{q: q, canary: &canary{size: 1, address: message.DirectReply}}
	m := Message{plan: &topology.Plan{}, Properties: amqp.Delivery{Headers: amqp.Table{"large": strings.Repeat("x", topology.FrameMax)}}}
	if _, err := o.redriven(&m, &Redrive{}); !errors.Is(err, errNoRoom) || o.progress().Canary.Sent != 0 {
		t.Errorf("moved: %v, %d sent ahead", err, o.progress().Canary.Sent)
	}
}

// TestCanaryUnheard: a redrive that does not receive the verdicts any more moves nothing else.
func TestCanaryUnheard(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(20)...)
	q, proxy := r.through()
	var cut sync.Once
	p, err := q.Redrive(t.Context(), Redrive{Canary: 3}, func(p Progress) {
		if p.Done > 0 {
			cut.Do(proxy.Cut)
		}
	})
	if !errors.Is(err, ErrStopped) || p.Canary.Done || p.Done > 3 {
		t.Errorf("%+v %v", p, err)
	}
	r.nothingLost(20)
}

// TestCanaryTwoReplies: a message that was delivered twice has two verdicts, and is one of those sent ahead.
func TestCanaryTwoReplies(t *testing.T) {
	t.Parallel()
	o := &operation{canary: &canary{good: map[string]bool{}}, pipeline: pipeline{p: Progress{Canary: CanaryProgress{Sent: 3}}}}
	for _, id := range []string{"1", "1", "2", "x", "4"} {
		must.Do(t, o.onReply(&amqp.Delivery{CorrelationId: id, Body: []byte(`{"outcome":"ack","message_id":"the same"}`)}))
	}
	if n := o.progress().Canary.Good; n != 2 {
		t.Errorf("%d good, want 2", n)
	}
}

// TestPaceMakesUpForNothing: a rate is a limit, also after a pause.
func TestPaceMakesUpForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := operation{rate: rate.NewLimiter(10, 1)}
		time.Sleep(time.Hour)
		begun := time.Now()
		for range 5 {
			time.Sleep(o.due()) // what due has seen is not taken
			must.Do(t, o.rate.Wait(t.Context()))
		}
		if took := time.Since(begun); took != 400*time.Millisecond {
			t.Errorf("5 messages at 10/s took %v", took)
		}
	})
}
