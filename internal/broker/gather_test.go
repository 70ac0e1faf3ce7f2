package broker

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestStreamGathers: messages that are kept back leave in their order, by Flush or with whatever else is written.
func TestStreamGathers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	queue := queue(t)
	p := publisher(t, options(t))
	must.Do(t, p.Publish(within(t, 30*time.Second), parked(queue, "another")))
	c := newStream(t, p)
	c.Gather()
	confirmed(t, send(t, c, numbered(queue, 1000)), false, "the first, which is tried")
	for from, leave := range map[int]func(){
		0:  c.Flush,
		20: func() { must.Do(t, p.Publish(within(t, 30*time.Second), parked(queue, "another"))) }, // on another channel
	} {
		var receipts []*Receipt
		for i := range 20 {
			receipts = append(receipts, send(t, c, numbered(queue, from+i)))
		}
		if c.session.wire.Pending() == 0 {
			t.Error("nothing is kept back")
		}
		if leave(); c.session.wire.Pending() != 0 {
			t.Error("something is still kept back")
		}
		for i, r := range receipts {
			confirmed(t, r, false, from+i)
		}
	}
	got := map[int][]int{}
	for range 43 {
		if d := brokertest.Get(t, url, queue, time.Minute); string(d.Body) != "another" {
			n := must.Get(strconv.Atoi(d.MessageId))(t)
			got[n/20] = append(got[n/20], n)
		}
	}
	if len(got[0]) != 20 || len(got[1]) != 20 || !slices.IsSorted(got[0]) || !slices.IsSorted(got[1]) {
		t.Errorf("got %v", got)
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
