package consume

import (
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/broker"
)

// offer is what pump offers to the workers: a delivery or a batch; empty without either.
type offer struct {
	delivery
	batch *batch
}

// messages is how many messages are in it.
func (o offer) messages() int {
	switch {
	case o.batch != nil:
		return len(o.batch.attempts)
	case o.Delivery != nil:
		return 1
	}
	return 0
}

// pump is the state of the goroutine that takes the messages of a session.
type pump struct {
	offered   offer       // to the workers; empty without one
	admitted  bool        // it has passed admit
	long      bool        // as pace.long when the broker's consumer began
	blind     bool        // a delivery has lost its key, and nothing behind it is handled
	lastTag   uint64      // of the deliveries so far, and so their number
	collector *collector  // nil: each message is POSTed alone
	overdue   *time.Timer // wakes it when a batch has to go out
	back      back
	scratch   attempt
	batch     []*broker.Delivery // memory of the deliveries that were taken last
	pending   []*broker.Delivery // those of them that no worker has taken
}

// back are batches that workers return to the pump.
type back struct {
	mu      sync.Mutex
	all     []*batch
	pumping bool // it will take them
}

// take hands deliveries to the workers, each as one becomes free, until the gate is closed or the prefetch changes
// (errPaused), the consumer stops (errStopping) or the session ends. During the ramp-up it waits until the limit allows
// one more POST.
func (s *session) take(deliveries *broker.Deliveries) error {
	s.beginPump()
	defer s.endPump()
	flow := s.c.o.Flow
	changed := flow.Changed()
	for flow.Open() && s.leaving.Err() == nil && s.pump.long == s.c.pace.long.Load() {
		s.offer()
		messages := s.pump.offered.messages() // read before a worker has them
		if messages > 0 {
			s.c.startWorker()
		}
		ready, work, wake := s.awaited(deliveries, messages)
		select {
		case work <- s.pump.offered:
			s.c.counts.posts.Add(1)
			s.c.counts.inflight.Add(int64(messages))
			s.taken()
		case <-wake:
		case <-ready:
			if ended := s.fetch(deliveries); ended { // the server cancelled the consumer, or the channel is closing
				<-s.done
				return s.sub.Err()
			}
		case <-changed:
			changed = flow.Changed()
		case <-s.c.stop.stopping:
			return errStopping
		case <-s.done:
			return s.sub.Err()
		}
	}
	return errPaused
}

// startWorker starts another worker if all are busy. An idle queue has none: they would be most of what it holds.
func (c *Consumer) startWorker() {
	if c.started < c.o.Concurrency && c.counts.posts.Load() >= int64(c.started) {
		c.started++
		c.workers.Go(c.work)
	}
}

// awaited returns the channels that take waits for, with the number of messages that are offered. A nil channel is
// never ready.
func (s *session) awaited(deliveries *broker.Deliveries, messages int) (
	ready <-chan struct{}, work chan<- offer, wake <-chan struct{}) {
	ready, work, wake = deliveries.Ready(), s.c.offered, s.c.woken
	if len(s.pump.pending) > 0 {
		ready = nil
	}
	switch {
	case messages == 0:
		work = nil
	case (s.c.limited || s.c.o.Flow.Ramping()) && s.c.counts.posts.Load() >= int64(s.c.o.Flow.Limit()):
		ready, work, wake = nil, nil, s.c.freed
	case s.c.limited && !s.admit(messages): // one of the channels says why
		ready, work = nil, nil
	case s.pump.collector == nil:
		ready, wake = nil, nil
	}
	return ready, work, wake
}

// offer makes s.pump.offered what has to be handled next. A batch that is not full grows with every call until a worker
// has taken it, or it was admitted.
func (s *session) offer() {
	switch {
	case s.pump.collector == nil && s.pump.offered.Delivery == nil:
		s.pump.offered.delivery = s.nextWhole()
	case s.pump.collector != nil && !s.pump.admitted:
		s.pump.offered.batch = s.gather()
	}
}

// taken removes what a worker has taken.
func (s *session) taken() {
	if s.pump.collector != nil {
		s.pump.collector.take(s.pump.offered.batch)
	}
	s.pump.offered, s.pump.admitted = offer{}, false
}

// nextWhole is next without the messages for whose bodies there is no memory: they are held.
func (s *session) nextWhole() delivery {
	for {
		d := s.next()
		if d.Delivery == nil || d.Missing == 0 {
			return d
		}
		s.c.holdMissing(d)
	}
}

func (s *session) beginPump() {
	s.pump.back.mu.Lock()
	defer s.pump.back.mu.Unlock()
	s.pump.back.pumping = true
}

// endPump ends what only pump does. From here on giveBack releases messages, and leftover those that are here.
func (s *session) endPump() {
	if s.pump.admitted {
		s.pump.admitted = false
		free(s.c.o.Slots)
	}
	if s.pump.collector != nil {
		s.pump.overdue.Stop()
	}
	s.pump.back.mu.Lock()
	defer s.pump.back.mu.Unlock()
	s.pump.back.pumping = false
}

// leftover releases what pump had offered or gathered, and no worker has taken.
func (s *session) leftover() {
	if s.pump.offered.Delivery != nil {
		s.releaseUnstarted(s.pump.offered.delivery)
	}
	s.pump.offered = offer{}
	if s.pump.collector == nil {
		return
	}
	for _, b := range append(s.pump.collector.rest(), s.takeBack()...) {
		s.releaseBatch(b)
		b.recycle()
	}
}

// fetch makes the deliveries that have arrived pending; none is pending before. It reports whether no more will arrive.
// The window relies on delivery tags that count up by one: a broker that sends others loses the session.
func (s *session) fetch(deliveries *broker.Deliveries) (ended bool) {
	s.pump.batch, ended = deliveries.Take(s.pump.batch)
	s.pump.pending = s.pump.batch
	for _, d := range s.pump.batch {
		if s.pump.lastTag++; d.DeliveryTag != s.pump.lastTag {
			s.c.o.Logger.Error("delivery tag out of order", "tag", d.DeliveryTag, "expected",
				s.pump.lastTag)
			s.freePending()
			s.kill()
			return true
		}
	}
	return ended
}

// next takes the next delivery that may be handled; it is empty without one.
func (s *session) next() (d delivery) {
	if s.c.order != nil {
		for _, pending := range s.pump.pending {
			s.c.order.add(s, pending)
		}
		s.pump.pending = nil
		d = s.c.order.take()
	} else if len(s.pump.pending) > 0 {
		d = delivery{Delivery: s.pump.pending[0], session: s}
		s.pump.pending[0] = nil
		s.pump.pending = s.pump.pending[1:]
	}
	if d.Delivery != nil {
		s.receive(d.Delivery)
	}
	return d
}

// receive counts a delivery: from here on it is outstanding until end. In order each attempt counts as a delivery.
func (s *session) receive(d *broker.Delivery) {
	s.outstanding.Add(1)
	s.c.counts.received.Add(1)
	redelivered := 0
	if d.Redelivered {
		redelivered = 1
	}
	s.c.metrics.received[redelivered].Inc()
	if !d.Timestamp.IsZero() {
		s.c.metrics.age.Observe(max(0, time.Since(d.Timestamp).Seconds()))
	}
}

// pace decides between the two prefetch counts.
type pace struct {
	long    atomic.Bool  // Options.LongPrefetch
	average atomic.Int64 // duration of the last dozen attempts in nanoseconds
}

// Prefetch is how many unsettled messages the broker may deliver.
func (c *Consumer) Prefetch() int {
	if c.pace.long.Load() {
		return c.o.LongPrefetch
	}
	return c.o.Prefetch
}

// measure is called with the duration of each attempt. Between half a second and a whole one nothing changes: with each
// change the consumer is registered again, and what it holds returns to the queue.
func (c *Consumer) measure(took time.Duration) {
	if c.o.LongPrefetch == 0 {
		return
	}
	average := time.Duration(c.pace.average.Add((int64(took) - c.pace.average.Load()) / 16))
	if long := c.pace.long.Load(); long && average < time.Second/2 || !long && average > time.Second {
		c.pace.long.Store(!long)
		signal(c.woken)
	}
}
