package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// settling is what a sidecar does with redriven messages: it publishes the verdict where asked, and parks or takes
// them.
func (r *rig) settling(verdict func(n int, d *amqp.Delivery) *message.VerdictReply) (stop func()) {
	ch := brokertest.Channel(r.t, r.url)
	come := must.Get(ch.Consume(r.plan.Queue, "", false, false, false, false, nil))(r.t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		for d := range come {
			n++
			address, token := message.Reply(d.Headers)
			if v := verdict(n, &d); v != nil && address != "" {
				body, _ := json.Marshal(v)
				for range 2 { // it may come twice
					_ = ch.PublishWithContext(context.Background(), "", address, false, false, amqp.Publishing{CorrelationId: token, Body: body})
				}
				_ = ch.PublishWithContext(context.Background(), "", address, false, false, amqp.Publishing{CorrelationId: "x", Body: []byte("nonsense")})
			}
			_ = d.Ack(false)
		}
	}()
	return func() {
		_ = ch.Close()
		<-ended
	}
}

func TestCanary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		verdict func(n int, d *amqp.Delivery) *message.VerdictReply
		park    int
		want    CanaryProgress
		done    int
		err     string
	}{
		{"all good", func(int, *amqp.Delivery) *message.VerdictReply { return &message.VerdictReply{Outcome: "ack"} }, 20, CanaryProgress{Sent: 3, Good: 3, Done: true}, 20, ""},
		{"fewer than asked for", func(int, *amqp.Delivery) *message.VerdictReply { return &message.VerdictReply{Outcome: "discard"} }, 2, CanaryProgress{Sent: 2, Good: 2, Done: true}, 2, ""},
		{"parked again", func(n int, d *amqp.Delivery) *message.VerdictReply {
			if n == 2 {
				return &message.VerdictReply{MessageID: d.MessageId, Outcome: "park", Reason: "max_retries", Status: 503}
			}
			return &message.VerdictReply{Outcome: "ack"}
		}, 20, CanaryProgress{Sent: 3, Bad: 1}, 3, "failed again: park (max_retries, status 503)"},
		{"no verdict at all", func(int, *amqp.Delivery) *message.VerdictReply { return nil }, 20, CanaryProgress{Sent: 3}, 3, "3 of 3 messages have no verdict after 200ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.park(r.numbered(c.park)...)
			timeout := time.Minute
			if c.want == (CanaryProgress{Sent: 3}) {
				timeout = 200 * time.Millisecond
			}
			defer r.settling(c.verdict)()
			p, err := r.Redrive(t.Context(), Redrive{Canary: 3, CanaryTimeout: timeout}, nil)
			if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v", err)
			}
			got := p.Canary
			if c.want.Bad > 0 {
				got.Good = 0 // others may have been reported before
			}
			if got.Last = nil; got != c.want || p.Done != c.done {
				t.Errorf("%+v, %d done", p.Canary, p.Done)
			}
			brokertest.WaitReady(t, r.url, r.name, c.park-c.done)
		})
	}
}

// TestCanaryNeedsAnAddress: a user who may not publish to the default exchange, through which verdicts come, gets an error
// so, and nothing is moved without them.
func TestCanaryNeedsAnAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, presets["per-queue"])
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
		presets["per-queue"](o)
		o.RetryDelay = time.Second
	})
	r.park(r.numbered(3)...)
	_, err := r.Redrive(t.Context(), Redrive{Canary: 3, CanaryTimeout: 200 * time.Millisecond}, nil)
	if !errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), "no verdict after 1.2s") {
		t.Error(err)
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
