package model

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// queue holds messages that are ready, in the order in which they came; what is requeued goes back to its place.
type queue struct {
	b    *Broker
	name string
	args Table

	quorum      bool
	atLeastOnce bool
	limit       int // deliveries in vain before the message is dead-lettered; -1 = none
	delays      delays
	ttl         time.Duration
	dlx, dlk    string
	hasDLX      bool

	ready     []*entry
	unacked   int
	delayed   int
	undead    []undead // dead letters with nowhere to go, kept by at-least-once
	consumers []*consumer
	turn      int // whose turn is next
	timer     *time.Timer
	due       time.Time // when the timer fires; zero = not set
	deleted   bool
}

// delays are those of what returns to a quorum queue of 4.3.
type delays struct {
	failed, returned  bool // what is rejected or lost; what a nack gives back
	shortest, longest time.Duration
}

func newDelays(args Table) (d delays) {
	kind := args["x-delayed-retry-type"]
	d.failed, d.returned = kind == "failed" || kind == "all", kind == "returned" || kind == "all"
	shortest, _ := number(args["x-delayed-retry-min"])
	longest, bounded := number(args["x-delayed-retry-max"])
	if !bounded {
		longest = shortest
	}
	d.shortest, d.longest = time.Duration(shortest)*time.Millisecond, time.Duration(longest)*time.Millisecond
	return d
}

// of is how long a message waits; failed says that it was rejected or lost.
func (d *delays) of(failed bool, deliveries int) time.Duration {
	if failed && !d.failed || !failed && !d.returned {
		return 0
	}
	return min(d.shortest*time.Duration(max(deliveries, 1)), d.longest)
}

// entry is one message in one queue.
type entry struct {
	m           *stored
	seq         uint64
	expires     time.Time // zero = never
	redelivered bool
	deliveries  int // in vain, that the delivery limit counts
	acquired    int // all in vain
	returned    bool
}

// stored is a message as it was published.
type stored struct {
	exchange string
	keys     []string // as published: the routing key, nothing else
	p        Properties
	body     []byte
	deaths   []death

	carried     int  // deliveries in vain that came along from another queue
	redelivered bool // this too
}

type undead struct {
	e      *entry
	reason string
}

func newQueue(b *Broker, name string, args Table) *queue {
	q := &queue{b: b, name: name, args: args, limit: -1, ttl: -1}
	q.quorum = args["x-queue-type"] == "quorum"
	q.atLeastOnce = q.quorum && args["x-dead-letter-strategy"] == "at-least-once"
	if ttl, ok := number(args["x-message-ttl"]); ok {
		q.ttl = time.Duration(ttl) * time.Millisecond
	}
	q.dlx, q.hasDLX = args["x-dead-letter-exchange"].(string)
	q.dlk, _ = args["x-dead-letter-routing-key"].(string)
	if q.quorum && b.o.Version >= V40 {
		q.limit = 20
	}
	if limit, ok := number(args["x-delivery-limit"]); ok && q.quorum {
		q.limit = int(limit)
	}
	if q.quorum && b.o.Version >= V43 {
		q.delays = newDelays(args)
	}
	return q
}

func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func (q *queue) put(m *stored) {
	e := &entry{m: m, seq: q.b.seq, redelivered: m.redelivered || m.carried > 0}
	ttl := q.ttl
	if own, err := strconv.Atoi(m.p.Expiration); err == nil {
		if own := time.Duration(own) * time.Millisecond; ttl < 0 || own < ttl {
			ttl = own
		}
	}
	if ttl >= 0 {
		e.expires = time.Now().Add(ttl)
	}
	q.ready = append(q.ready, e)
	q.pump()
}

// back makes an unacked message ready again: at its old place in a classic queue, before or (3.10) behind what has
// never been delivered in a quorum queue. counted says that the delivery limit counts it.
func (q *queue) back(e *entry, counted bool) {
	if q.deleted {
		return
	}
	e.redelivered = true
	e.acquired++
	if counted {
		e.deliveries++
	}
	if q.limit >= 0 && e.deliveries > q.limit {
		q.b.deadLetter(q, e, "delivery_limit")
		return
	}
	if d := q.delays.of(counted, e.deliveries); d > 0 {
		q.delayed++
		time.AfterFunc(d, func() {
			q.b.mu.Lock()
			defer q.b.mu.Unlock()
			q.delayed--
			if !q.deleted {
				q.again(e)
				q.pump()
			}
		})
		return
	}
	q.again(e)
}

// again makes a message that returns ready.
func (q *queue) again(e *entry) {
	if q.quorum {
		e.returned = true
		at := 0
		for at < len(q.ready) && (q.ready[at].returned || q.b.o.Version < V40) {
			at++
		}
		q.ready = slices.Insert(q.ready, at, e)
		return
	}
	at, _ := slices.BinarySearchFunc(q.ready, e.seq, func(e *entry, seq uint64) int {
		return int(int64(e.seq) - int64(seq))
	})
	q.ready = slices.Insert(q.ready, at, e)
}

// pump delivers what it can, and dead-letters what has expired at the head. Only there: a message whose time is over
// waits behind one whose time is not.
func (q *queue) pump() {
	for !q.deleted && len(q.ready) > 0 {
		e := q.ready[0]
		if !e.expires.IsZero() && !e.expires.After(time.Now()) {
			q.ready = q.ready[1:]
			q.b.deadLetter(q, e, "expired")
			continue
		}
		c := q.next()
		if c == nil {
			break
		}
		q.ready = q.ready[1:]
		c.deliver(e)
	}
	q.wake()
}

// wake sets the timer for when the head expires.
func (q *queue) wake() {
	if q.deleted || len(q.ready) == 0 || q.ready[0].expires.IsZero() {
		return
	}
	at := q.ready[0].expires
	if q.due.Equal(at) {
		return
	}
	q.due = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.tick)
		return
	}
	q.timer.Reset(time.Until(at))
}

func (q *queue) tick() {
	q.b.mu.Lock()
	defer q.b.mu.Unlock()
	q.due = time.Time{}
	q.pump()
}

// next is the consumer whose turn it is among those with room, nil when none has any.
func (q *queue) next() *consumer {
	for i := range q.consumers {
		if c := q.consumers[(q.turn+i)%len(q.consumers)]; c.room() {
			q.turn = (q.turn + i + 1) % len(q.consumers)
			return c
		}
	}
	return nil
}

func (q *queue) remove(c *consumer) {
	q.consumers = slices.DeleteFunc(q.consumers, func(x *consumer) bool { return x == c })
}

func (q *queue) cancelAll() {
	for _, c := range q.consumers {
		delete(c.ch.consumers, c.tag)
		c.ch.method(60, 30, appendShort(nil, c.tag), []byte{1})
	}
	q.consumers = nil
}

// render is what a consumer sees of a message.
func (b *Broker) render(q *queue, e *entry) Properties {
	p := e.m.p
	if len(e.m.deaths) == 0 && !q.quorum {
		return p
	}
	h := Table{}
	maps.Copy(h, p.Headers)
	writeDeaths(h, e.m.deaths)
	if q.quorum {
		q.writeCounts(h, e)
	}
	p.Headers = h
	return p
}

// writeCounts adds how often a quorum queue has delivered the message in vain.
func (q *queue) writeCounts(h Table, e *entry) {
	v := q.b.o.Version
	switch {
	case e.deliveries > 0:
		h["x-delivery-count"] = int64(e.deliveries)
	case e.m.carried > 0:
		h["x-delivery-count"] = int64(e.m.carried)
	}
	if v >= V43 && e.acquired > 0 {
		h["x-acquired-count"] = int64(e.acquired)
	}
}
