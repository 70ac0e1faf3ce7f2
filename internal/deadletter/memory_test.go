package deadletter

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// small gives a rig little memory, and its queue a spool.
func (r *rig) small(spool *broker.Spool) *Queue {
	r.t.Helper()
	r.memory = budget.New(1 << 20).Account(budget.DeadLetters)
	o := r.broker()
	o.Spool = spool
	return New(Options{Broker: o, By: "operator"}, Owner{Plan: r.plan})[0]
}

// TestMessagesLargerThanMemory: with a file for them they are shown, exported and redriven like all others.
func TestMessagesLargerThanMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Queue = r.small(broker.NewSpool(t.TempDir(), 1<<30))
	large := r.parked("large", nil)
	large.Body = bytes.Repeat([]byte("0123456789"), 300<<10)
	many := r.numbered(12)
	for i := range many {
		many[i].Body = bytes.Repeat([]byte("m"), 150<<10)
	}
	r.park(large)
	r.park(many...)
	views, _ := r.browse(Filter{}, Scan{})
	if len(views) != 13 || views[0].Size != len(large.Body) {
		t.Errorf("%d messages are shown", len(views))
	}
	var out bytes.Buffer
	p := must.Get(r.Export(t.Context(), &out, Selection{}, nil))(t)
	line, _, _ := bytes.Cut(out.Bytes(), []byte("\n"))
	first := must.Get(readLine(bytes.Clone(line)))(t)
	if p.Done != 13 || !bytes.Equal(first.Body, large.Body) || bytes.Count(out.Bytes(), []byte("\n")) != 13 {
		t.Errorf("exported %+v, the first one with %d bytes", p, len(first.Body))
	}
	if p := r.redrive(Redrive{}); p.Done != 13 || p.Failed != 0 {
		t.Errorf("redriven %+v", p)
	}
	if got := r.drain(r.plan.Queue); len(got) != 13 || len(got[0].Body) != len(large.Body) {
		t.Errorf("%d messages arrived", len(got))
	}
	if p := must.Get(r.Import(t.Context(), &out, 0, nil))(t); p.Done != 13 {
		t.Errorf("imported %+v", p)
	}
	if got := r.drain(r.name); len(got) != 13 || !bytes.Equal(got[0].Body, large.Body) {
		t.Errorf("%d messages are parked again", len(got))
	}
}

// TestAnImportWaitsForMemory: a line counts until its message is confirmed.
func TestAnImportWaitsForMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := budget.New(1 << 20)
	others := b.Account(budget.Deliveries)
	others.Take(1 << 20)
	r.memory = b.Account(budget.DeadLetters)
	q := r.another()
	file := strings.Repeat(`{"message_id":"m","routing_key":"k","body":"`+strings.Repeat("x", 100<<10)+`"}`+"\n", 20)
	var free sync.Once
	p, err := q.Import(t.Context(), strings.NewReader(file), 0, func(p Progress) {
		if p.Scanned == 0 {
			return
		}
		free.Do(func() {
			if p.Scanned != 1 || p.Matched != 0 {
				t.Errorf("without memory: %+v", p)
			}
			others.Give(1 << 20)
		})
	})
	if err != nil || p.Done != 20 || r.memory.Held() != 0 {
		t.Errorf("%+v, %v, %d bytes are held", p, err, r.memory.Held())
	}
	ctx, cancel := context.WithCancel(t.Context())
	others.Take(1 << 20)
	defer others.Give(1 << 20)
	if _, err := q.Import(ctx, strings.NewReader(file), 0, func(p Progress) {
		if p.Scanned > 0 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestAMessageThatCannotBeRead: without a file for it a message that is too large stays where it is and is named, and
// the others go.
func TestAMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Queue = r.small(nil)
	large := r.parked("large", nil)
	large.Body = make([]byte, 3<<20)
	r.park(large, r.parked("small", amqp.Table{"x-final-status-code": int32(500)}))
	views, _ := r.browse(Filter{}, Scan{})
	if len(views) != 2 || views[0].Size != len(large.Body) {
		t.Errorf("shown as %+v", views)
	}
	var out bytes.Buffer
	_, err := r.Export(t.Context(), &out, Selection{}, nil)
	if !errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), "3145728 bytes") {
		t.Errorf("exported: %v", err)
	}
	if p := r.redrive(Redrive{}); p.Done != 1 || p.Failed != 1 {
		t.Errorf("redriven %+v", p)
	}
	if got := r.drain(r.plan.Queue); len(got) != 1 || got[0].MessageId != "small" {
		t.Errorf("%d messages arrived", len(got))
	}
	r.nothingLost(1)
}

// TestNoMemoryForAMessage: without memory for the headers, which hold the count of deliveries, the queue is not
// touched: its delivery limit would drop a message that is given back again and again.
func TestNoMemoryForAMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.redeclare(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(6)})
	r.park(r.parked("1", amqp.Table{"large": strings.Repeat("x", 10<<10)}))
	b := budget.New(1 << 20)
	others := b.Account(budget.Deliveries)
	others.Take(1 << 20)
	defer others.Give(1 << 20)
	r.memory = b.Account(budget.DeadLetters)
	q := New(Options{Broker: r.broker(), By: "test"}, Owner{Plan: r.plan})[0]
	q.o.Broker.MemoryPatience = time.Millisecond
	for range 10 {
		if _, err := q.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil }); !errors.Is(err, ErrUnsafe) {
			t.Fatal(err)
		}
	}
	if got := r.drain(r.name); len(got) != 1 {
		t.Errorf("%d left", len(got))
	}
}
