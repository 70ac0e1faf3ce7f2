package broker

import (
	"errors"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestPipeGathers: messages that are kept back leave by Flush, with whatever else is written, and when there is no more room,
// in their order.
func TestPipeGathers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	p := publisher(t, options(url))
	connected(t, p)
	c := pipe(t, p)
	defer c.Close()
	c.Gather()
	next := 0
	send := func(n int) (receipts []*Receipt) {
		t.Helper()
		for range n {
			r, err := c.Send(within(t, 30*time.Second), numbered(queue, next))
			if err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, r)
			next++
		}
		return receipts
	}
	wait := func(receipts []*Receipt) {
		t.Helper()
		for _, r := range receipts {
			if err := r.Wait(within(t, 30*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(n int) {
		t.Helper()
		w := c.session.wire
		w.out.Lock()
		defer w.out.Unlock()
		if have := len(w.gathered) > 0; have != (n > 0) || w.gathering {
			t.Errorf("%d bytes are kept back of %d messages, gathering %t", len(w.gathered), n, w.gathering)
		}
	}
	for range 2 { // the first goes alone: see Send
		r := send(1)
		c.Flush()
		wait(r)
	}
	kept(0)
	first := send(20)
	kept(20)
	c.Flush()
	kept(0)
	wait(first)
	second := send(20)
	if err := p.Publish(within(t, 30*time.Second), parked(queue, "another")); err != nil { // on another channel
		t.Fatal(err)
	}
	kept(0)
	wait(second)
	done := make(chan struct{})
	third := make(chan *Receipt, 1000)
	go func() {
		defer close(done)
		for r := range third {
			if err := r.Wait(within(t, 30*time.Second)); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 10 { // more than may be under way
		for _, r := range send(100) {
			third <- r
		}
	}
	c.Flush()
	close(third)
	<-done
	brokertest.WaitReady(t, url, queue, next+1)
	ch := brokertest.Channel(t, url)
	seen := 0
	for range next + 1 {
		d, _, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
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
	queue := brokertest.Queue(t, url, brokertest.Name(t, "q"), nil)
	p := publisher(t, options(url))
	connected(t, p)
	c := pipe(t, p)
	c.Gather()
	r, err := c.Send(within(t, 30*time.Second), numbered(queue, 1))
	if err != nil || r.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	r, err = c.Send(within(t, 30*time.Second), numbered(queue, 2))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.session.wire.raw.Close()
	c.Flush()
	if err := r.Wait(within(t, 30*time.Second)); !errors.Is(err, ErrUnknown) {
		t.Errorf("the message is %v", err)
	}
	<-c.session.Done()
	if n := brokertest.Ready(t, url, queue); n != 1 {
		t.Errorf("%d messages", n)
	}
}
