package consume

import (
	"time"

	"sidecar/internal/broker"
)

// delivery is one delivery with the session it came from: it is settled there or not at all.
type delivery struct {
	*broker.Delivery
	session *session
	held    *entry // nil: the messages are handled in no order
}

// offer is what pump offers to the workers: a delivery or a batch; empty without either.
type offer struct {
	delivery
	batch *batch
}

// messages is how many messages are in it.
func (o offer) messages() int {
	switch {
	case o.batch != nil:
		return len(o.batch.records)
	case o.Delivery != nil:
		return 1
	}
	return 0
}

// pump hands deliveries to the workers, each as one becomes free, until the gate is closed or the prefetch changes
// (errPaused), the consumer stops (errStopping) or the session ends. During the ramp-up it waits until the limit allows
// one more POST.
func (s *session) pump(deliveries *broker.Deliveries) error {
	s.beginPump()
	defer s.endPump()
	flow := s.c.o.Flow
	changed := flow.Changed()
	for flow.Open() && s.leaving.Err() == nil && s.long == s.c.long.Load() {
		s.offer()
		messages := s.offered.messages() // read before a worker has them
		ready, work, wake := deliveries.Ready(), s.c.offered, s.c.woken
		if len(s.pending) > 0 {
			ready = nil
		}
		switch { // a nil channel is never ready
		case messages == 0:
			work = nil
		case (s.c.limited || flow.Ramping()) && s.c.posts.Load() >= int64(flow.Limit()):
			ready, work, wake = nil, nil, s.c.freed
		case s.c.limited && !s.admit(messages): // one of the channels below says why
			ready, work = nil, nil
		case s.collector == nil:
			ready, wake = nil, nil
		}
		select {
		case work <- s.offered:
			s.c.posts.Add(1)
			s.c.inflight.Add(int64(messages))
			s.taken()
		case <-wake:
		case <-ready:
			if ended := s.fetch(deliveries); ended { // the server cancelled the consumer, or the channel is closing
				<-s.done
				return s.sub.Err()
			}
		case <-changed:
			changed = flow.Changed()
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.sub.Err()
		}
	}
	return errPaused
}

// offer makes s.offered what has to be handled next. A batch that is not full grows with every call until a worker has
// taken it, or it was admitted.
func (s *session) offer() {
	switch {
	case s.collector == nil && s.offered.Delivery == nil:
		s.offered.delivery = s.nextWhole()
	case s.collector != nil && !s.admitted:
		s.offered.batch = s.gather()
	}
}

// taken removes what a worker has taken.
func (s *session) taken() {
	if s.collector != nil {
		s.collector.take(s.offered.batch)
	}
	s.offered, s.admitted = offer{}, false
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
	s.backMu.Lock()
	defer s.backMu.Unlock()
	s.pumping = true
}

// endPump ends what only pump does. From here on giveBack releases messages, and leftover those that are here.
func (s *session) endPump() {
	if s.admitted {
		s.admitted = false
		free(s.c.o.Slots)
	}
	if s.collector != nil {
		s.overdue.Stop()
	}
	s.backMu.Lock()
	defer s.backMu.Unlock()
	s.pumping = false
}

// leftover releases what pump had offered or gathered, and no worker has taken.
func (s *session) leftover() {
	if s.offered.Delivery != nil {
		s.releaseUnstarted(s.offered.delivery)
	}
	s.offered = offer{}
	if s.collector == nil {
		return
	}
	for _, b := range append(s.collector.rest(), s.takeBack()...) {
		s.releaseBatch(b)
	}
}

// fetch makes the deliveries that have arrived pending; none is pending before. It reports whether no more will arrive.
// The window relies on delivery tags that count up by one: a broker that sends others loses the session.
func (s *session) fetch(deliveries *broker.Deliveries) (ended bool) {
	s.batch, ended = deliveries.Take(s.batch)
	s.pending = s.batch
	for _, d := range s.batch {
		if s.lastTag++; d.DeliveryTag != s.lastTag {
			s.c.o.Logger.Error("delivery tag out of order", "tag", d.DeliveryTag, "expected",
				s.lastTag)
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
		for _, pending := range s.pending {
			s.c.order.add(s, pending)
		}
		s.pending = nil
		d = s.c.order.take()
	} else if len(s.pending) > 0 {
		d = delivery{s.pending[0], s, nil}
		s.pending[0] = nil
		s.pending = s.pending[1:]
	}
	if d.Delivery != nil {
		s.receive(d.Delivery)
	}
	return d
}

// receive counts a delivery: from here on it is outstanding until end. In order each attempt counts as a delivery.
func (s *session) receive(d *broker.Delivery) {
	s.outstanding.Add(1)
	s.c.received.Add(1)
	redelivered := 0
	if d.Redelivered {
		redelivered = 1
	}
	s.c.metrics.received[redelivered].Inc()
	if !d.Timestamp.IsZero() {
		s.c.metrics.age.Observe(max(0, time.Since(d.Timestamp).Seconds()))
	}
}

// Prefetch is how many unsettled messages the broker may deliver.
func (c *Consumer) Prefetch() int {
	if c.long.Load() {
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
	average := time.Duration(c.average.Add((int64(took) - c.average.Load()) / 16))
	if long := c.long.Load(); long && average < time.Second/2 || !long && average > time.Second {
		c.long.Store(!long)
		signal(c.woken)
	}
}
