package broker

import (
	"errors"
	"sync"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestStreamGathers: messages that are kept back leave by Flush, with whatever else is written, and when there is no
// more room, in their order.
func TestStreamGathers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := queue(t)
	p := publisher(t, options(t))
	c := newStream(t, p)
	c.Gather()
	next := 0
	many := func(n int) (receipts []*Receipt) {
		t.Helper()
		for range n {
			receipts = append(receipts, send(t, c, numbered(queue, next)))
			next++
		}
		return receipts
	}
	wait := func(receipts []*Receipt) {
		t.Helper()
		for i, r := range receipts {
			confirmed(t, r, false, i)
		}
	}
	kept := func(n int) {
		t.Helper()
		if b := c.session.wire.Pending(); (b > 0) != (n > 0) {
			t.Errorf("%d bytes of %d messages are pending", b, n)
		}
	}
	for range 2 { // the first is tried: see Send
		r := many(1)
		c.Flush()
		wait(r)
	}
	kept(0)
	first := many(20)
	kept(20)
	c.Flush()
	kept(0)
	wait(first)
	second := many(20)
	if err := p.Publish(within(t, 30*time.Second), parked(queue, "another")); err != nil { // on another channel
		t.Fatal(err)
	}
	kept(0)
	wait(second)
	var waiting sync.WaitGroup
	for range 5 { // more than may be under way
		third := many(100)
		waiting.Go(func() { wait(third) })
	}
	c.Flush()
	waiting.Wait()
	brokertest.WaitReady(t, url, queue, next+1)
	seen := 0
	for range next + 1 {
		d := brokertest.Get(t, url, queue, time.Minute)
		if string(d.Body) == "another" {
			continue
		}
		if want := numbered(queue, seen).Msg.MessageId; d.MessageId != want {
			t.Fatalf("message %s where %s should be", d.MessageId, want)
		}
		seen++
	}
}

// TestFlushOnALostConnection: what was kept back when the connection is lost is unknown, and the session has ended.
func TestFlushOnALostConnection(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := queue(t)
	p := publisher(t, options(t))
	c := newStream(t, p)
	c.Gather()
	confirmed(t, send(t, c, numbered(queue, 1)), false, 1)
	r := send(t, c, numbered(queue, 2))
	_ = c.session.wire.Close()
	c.Flush()
	if err := r.Wait(within(t, 30*time.Second)); !errors.Is(err, ErrUnknown) {
		t.Errorf("the message is %v", err)
	}
	<-c.session.Done()
	if n := brokertest.Ready(t, url, queue); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestFullPipeFlushes: what waits for room would wait for ever for confirms of messages that were never written.
func TestFullPipeFlushes(t *testing.T) {
	t.Parallel()
	queue, o := queue(t), options(t)
	o.Heartbeat = time.Minute // one would flush, too
	c := newStream(t, publisher(t, o))
	c.Gather()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i := range 2 * streamWindow {
		r, err := c.Send(within(t, 10*time.Second), numbered(queue, i))
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		waiting.Go(func() { confirmed(t, r, false, i) })
	}
	c.Flush()
}
