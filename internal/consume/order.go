package consume

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/message"
)

// maxStay is the age at which a delivery is not handled any more: everything unsettled returns to the queue and is
// delivered again, before the broker closes the channel over it (after 30 minutes).
const maxStay = 15 * time.Minute

// order decides which deliveries may be handled, so that the messages of one key are handled one after the other. It
// belongs to the consumer and not to a session: an attempt of a lost session still runs, and keeps its key busy.
//
// A delivery is the first of its key, or waits behind the first. The first one is ready, in flight (offered to a worker,
// POSTed or parked) or held: until its next attempt, or because it ended unsettled. A session ends with drop.
type order struct {
	c   *Consumer
	key func(*message.Message) string // "": the message is handled in no order

	mu       sync.Mutex
	lanes    map[string]*lane
	ready    []*entry // the first to become ready first
	held     map[*entry]struct{}
	total    int              // entries
	inflight int              // of them
	full     bool             // every place of the window is taken by a message that waits
	kept     map[uint64]tried // by identity: messages that were tried here and went back unsettled
	seed     maphash.Seed
}

// lane is the deliveries of one key.
type lane struct {
	key     string
	first   *entry
	waiting []*entry
}

// entry is one delivery in the order.
type entry struct {
	delivery *broker.Delivery // nil: it has ended
	session  *session
	lane     *lane
	arrived  time.Time
	timer    *time.Timer // until due

	id uint64 // see identify; 0 when none was needed yet
	tried
}

// tried is what this process remembers of a message, and its headers do not say.
type tried struct {
	failed int       // attempts
	due    time.Time // of the next attempt
}

func newOrder(c *Consumer) *order {
	return &order{
		c: c, key: c.o.Key, lanes: map[string]*lane{}, held: map[*entry]struct{}{}, kept: map[uint64]tried{},
		seed: maphash.MakeSeed(),
	}
}

// add makes a delivery the last of its key.
func (o *order) add(s *session, d *broker.Delivery) {
	e := &entry{delivery: d, session: s, arrived: time.Now()}
	s.scratch.begin(delivery{d, s, e})
	key := o.key(s.scratch.read(o.c.o.Plan))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total++
	if e.lane = o.lanes[key]; e.lane == nil {
		e.lane = &lane{key: key}
		if key != "" {
			o.lanes[key] = e.lane
		}
	}
	if e.lane.first != nil {
		e.lane.waiting = append(e.lane.waiting, e)
	} else {
		o.start(e)
	}
	o.report()
}

// start makes e the first of its key: ready at its time. A redelivered one continues where its last delivery ended.
func (o *order) start(e *entry) {
	e.lane.first = e
	if e.id == 0 && e.delivery.Redelivered && len(o.kept) > 0 {
		e.id = o.identify(e.delivery)
		e.tried = o.kept[e.id]
		delete(o.kept, e.id)
	}
	if d := time.Until(e.due); d > 0 {
		o.held[e] = struct{}{}
		o.c.delayed.Add(1)
		e.timer = time.AfterFunc(d, func() { o.expire(e) })
		return
	}
	o.ready = append(o.ready, e)
}

func (o *order) expire(e *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unhold(e) {
		o.start(e)
		o.report()
		o.c.wake()
	}
}

// unhold reports whether e was held. It is not any more.
func (o *order) unhold(e *entry) bool {
	_, held := o.held[e]
	delete(o.held, e)
	if held && e.timer != nil {
		e.timer.Stop()
		e.timer = nil
		o.c.delayed.Add(-1)
	}
	return held
}

// take hands out the entry that has been ready for the longest time; nil without one.
func (o *order) take() *entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ready) == 0 {
		return nil
	}
	e := o.ready[0]
	o.ready = o.ready[1:]
	o.inflight++
	return e
}

// untake makes an entry ready again that no worker took.
func (o *order) untake(e *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight--
	o.ready = append(o.ready, e)
}

// hold keeps e, which is in flight, until its next attempt. When its session has ended, the message returns to the queue.
func (o *order) hold(e *entry, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight--
	e.due = time.Now().Add(d)
	if e.session.dropped {
		o.discard(e)
	} else {
		o.start(e)
	}
	o.report()
}

// ended takes e out, which was in flight: the next one of its key follows. A delivery that ended unsettled keeps its key
// busy until the channel is closed, because it is delivered again, before all that is behind it.
func (o *order) ended(e *entry, unsettled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight--
	e.delivery = nil
	switch {
	case !unsettled:
		o.finish(e)
		o.c.wake()
	case e.session.dropped:
		o.discard(e)
		o.c.wake()
	default:
		o.held[e] = struct{}{}
		e.session.leave()
	}
	o.report()
}

// drop takes out everything of a session that is not in flight. The broker delivers it again.
func (o *order) drop(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.dropped = true
	for _, l := range o.lanes {
		for _, e := range l.waiting { // all are of this session: each drops its own before the next one begins
			o.free(e)
		}
		o.total -= len(l.waiting)
		l.waiting = nil
	}
	for _, e := range slices.Concat(o.ready, slices.Collect(maps.Keys(o.held))) {
		o.unhold(e)
		o.discard(e)
	}
	o.ready = nil
	o.report()
}

// discard takes the first of a key out unsettled, and keeps its attempts for the next delivery of the message. Without
// room for them attempts are given back.
func (o *order) discard(e *entry) {
	if e.failed > 0 {
		if len(o.kept) >= 2*o.c.o.Prefetch {
			clear(o.kept)
		}
		o.kept[e.id] = e.tried
	}
	o.free(e)
	o.finish(e)
}

func (o *order) free(e *entry) {
	if e.delivery != nil {
		e.delivery.Free()
		if !e.session.gone() {
			o.c.returned.Add(1)
		}
	}
}

func (o *order) finish(e *entry) {
	l := e.lane
	o.total--
	if len(l.waiting) > 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		o.start(next)
		return
	}
	l.first = nil
	delete(o.lanes, l.key) // a lane without a key is not there
}

// report shows in the gate whether every place of the window is taken by a message that waits.
func (o *order) report() {
	full := o.total >= o.c.o.Prefetch && o.inflight == 0 && len(o.ready) == 0
	if full == o.full {
		return
	}
	if o.full = full; full {
		o.c.o.Flow.Hold(flow.Order, "every message in flight waits for a failed message of its key")
	} else {
		o.c.o.Flow.Lift(flow.Order)
	}
}

// identify returns a hash by which the next delivery of the same message is recognised.
func (o *order) identify(d *broker.Delivery) uint64 {
	var h maphash.Hash
	h.SetSeed(o.seed)
	for _, text := range []string{d.MessageId, d.CorrelationId, d.Exchange, d.RoutingKey} {
		_, _ = h.WriteString(text)
		_ = h.WriteByte(0)
	}
	_ = binary.Write(&h, binary.LittleEndian, []int64{d.Timestamp.Unix(), int64(len(d.Body))})
	_, _ = h.Write(d.Body[:min(len(d.Body), 4<<10)])
	return h.Sum64()
}
