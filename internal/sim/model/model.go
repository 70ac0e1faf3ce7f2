// Package model is a RabbitMQ in memory: as much of one as a sidecar meets, with the rules that cost messages written
// out. It speaks AMQP 0-9-1 over connections that are a pair of buffers, so that the real client runs against it under
// virtual time, and it breaks on demand, frame by frame.
//
// It is a model: nothing is on disk, there is one virtual host, every login is right, and features that no test needs
// (transactions, priorities, streams, policies, exchange bindings) are missing. Its other behaviour is compared with
// real brokers step by step, see package sim.
package model

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Version is the line of RabbitMQ whose rules count where they differ.
type Version int

// The lines whose rules differ.
const (
	V310 Version = 310
	V40  Version = 400
	V43  Version = 430
)

// Versions are the lines that have been compared with real brokers, the oldest first.
var Versions = []Version{V310, V40, V43}

// String is the version as the broker reports it to clients.
func (v Version) String() string {
	switch v {
	case V310:
		return "3.10"
	case V40:
		return "4.0"
	}
	return "4.3"
}

// Options of a Broker.
type Options struct {
	Version Version
	Seed    uint64 // of all that is random in it

	// Latency bounds the random time that a write takes to arrive; 0 = it is there at once.
	Latency time.Duration

	// Confirm bounds the random time that a confirm takes.
	Confirm time.Duration

	// Hook is asked before and after each method and each content a client sends. It is called with the broker locked:
	// it must not call the broker. nil = nothing ever happens.
	Hook func(Step) Effect
}

// Broker holds the state that survives connections. All methods are safe for concurrent use.
type Broker struct {
	o Options

	mu        sync.Mutex
	changed   *sync.Cond // alarm or connections
	exchanges map[string]*exchange
	queues    map[string]*queue
	servers   map[*server]struct{}
	down      bool
	alarm     bool
	last      int // number of a connection
	dialled   map[string]uint64
	seq       uint64
	dropped   []Dropped
}

// Dropped is a message that left the broker although no consumer took it.
type Dropped struct {
	MessageID, Queue, Why string
}

// New returns a broker with the default exchange and amq.fanout, amq.direct and amq.topic.
func New(o Options) *Broker {
	if o.Version == 0 {
		o.Version = V43
	}
	if o.Hook == nil {
		o.Hook = func(Step) Effect { return None }
	}
	b := &Broker{
		o: o, dialled: map[string]uint64{}, exchanges: map[string]*exchange{}, queues: map[string]*queue{},
		servers: map[*server]struct{}{},
	}
	b.changed = sync.NewCond(&b.mu)
	for name, kind := range map[string]string{"": "default", "amq.fanout": "fanout", "amq.direct": "direct",
		"amq.topic": "topic"} {
		b.exchanges[name] = &exchange{name: name, kind: kind}
	}
	return b
}

// Publish puts a message into the exchange without a connection and reports whether it reached a queue.
func (b *Broker) Publish(exchange, key string, p Properties, body []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.publish(exchange, key, &p, body) > 0
}

// Message is what lies in a queue.
type Message struct {
	Exchange, Key string
	Properties
	Body []byte
}

// Take removes what is ready in a queue and returns it, the oldest first; nothing when there is no such queue.
func (b *Broker) Take(queue string) []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[queue]
	if q == nil {
		return nil
	}
	out := make([]Message, 0, len(q.ready))
	for _, e := range q.ready {
		out = append(out, Message{e.m.exchange, e.m.keys[0], b.render(q, e), e.m.body})
	}
	q.ready = nil
	return out
}

// Count returns how many messages are ready and how many unacked in a queue; zeros when there is no such queue.
func (b *Broker) Count(queue string) (ready, unacked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[queue]; q != nil {
		return len(q.ready) + len(q.undead) + q.delayed, q.unacked
	}
	return 0, 0
}

// Held reports whether a consumer has an unsettled message of a queue.
func (b *Broker) Held(queue, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.servers {
		for _, ch := range s.channels {
			if slices.ContainsFunc(ch.unacked, func(d *delivery) bool { return d.q.name == queue && d.e.m.p.MessageID == id }) {
				return true
			}
		}
	}
	return false
}

// Dropped returns what was thrown away so far: rejected to a missing queue, expired without a way on, or an automatic
// cycle.
func (b *Broker) Dropped() []Dropped {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dropped)
}

// Connections counts the open connections, by name.
func (b *Broker) Connections() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[string]int{}
	for s := range b.servers {
		n[s.name]++
	}
	return n
}

// Stop breaks every connection and refuses new ones until Start. Messages stay, what was unacked is ready again.
func (b *Broker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = true
	b.each(func(*server) bool { return true }, (*server).cut)
}

// Start ends Stop.
func (b *Broker) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
}

// Cut breaks the connections of that name; what is on its way in either direction is lost.
func (b *Broker) Cut(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each(func(s *server) bool { return s.name == name }, (*server).cut)
}

// CancelConsumers sends the consumers of a queue a cancel, as a broker does whose queue lost its leader. What they hold
// stays theirs.
func (b *Broker) CancelConsumers(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[queue]; q != nil {
		q.cancelAll()
	}
}

// Alarm sets or ends the resource alarm: connections that publish are blocked from their next publish on.
func (b *Broker) Alarm(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm = on
	if !on {
		b.each(func(s *server) bool { return s.blocked }, (*server).unblock)
	}
	b.changed.Broadcast()
}

// each visits connections in the order they were made: maps have none, and the order shows.
func (b *Broker) each(which func(*server) bool, do func(*server)) {
	for _, s := range slices.SortedFunc(maps.Keys(b.servers), func(x, y *server) int { return x.number - y.number }) {
		if which(s) {
			do(s)
		}
	}
}

// Saved is a queue that was deleted, with its bindings and without its messages.
type Saved struct {
	name     string
	args     Table
	bindings map[string][]binding // by exchange
}

// Delete deletes a queue and returns what it held, and what brings it back.
func (b *Broker) Delete(queue string) ([]Message, Saved) {
	held := b.Take(queue)
	b.mu.Lock()
	defer b.mu.Unlock()
	saved := Saved{name: queue, bindings: map[string][]binding{}}
	q := b.queues[queue]
	if q == nil {
		return nil, saved
	}
	saved.args = q.args
	for _, x := range b.exchanges {
		for _, bound := range x.bindings {
			if bound.queue == queue {
				saved.bindings[x.name] = append(saved.bindings[x.name], bound)
			}
		}
	}
	b.deleteQueue(q)
	return held, saved
}

// Restore brings a deleted queue back, unless another process has.
func (b *Broker) Restore(s Saved) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queues[s.name] == nil {
		b.queues[s.name] = newQueue(b, s.name, s.args)
	}
	for name, bindings := range s.bindings {
		for _, bound := range bindings {
			if x := b.exchanges[name]; x != nil {
				x.bind(bound)
			}
		}
	}
	b.reroute()
}

// Idle reports whether none of the queues holds anything, ready or unacked.
func (b *Broker) Idle(queues ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range queues {
		if q := b.queues[name]; q != nil && len(q.ready)+len(q.undead)+q.delayed+q.unacked > 0 {
			return false
		}
	}
	return true
}
