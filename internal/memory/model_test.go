package memory

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"sidecar/internal/broker"
	"sidecar/internal/message"
)

// model is a queue, a link and an app, and what is in flight between them, without time.
type model struct {
	random   *rand.Rand
	memory   *Memory
	prefetch int

	ready   []*copied
	unacked map[*taken]*copied // of the session
	frames  []*taken           // acks on the link
	session *Session

	consumer int // how often it was registered
	window   int // unacked deliveries of it

	pending  []*taken // delivered, and not given to the app
	posted   []*taken // the app has them; also of lost sessions
	waiting  []*taken
	posts    map[string]int
	received int
}

// copied is a message as the queue has it.
type copied struct {
	id          string
	redelivered bool
}

// taken is a delivery of it, to one of the consumers of a session.
type taken struct {
	*broker.Delivery
	session  *Session
	consumer int
	known    Known
}

var acked = &message.Outcome{Status: 200}

var seed = maphash.MakeSeed()

// delivered is a message with nothing but an id.
func delivered(id string, again bool) *broker.Delivery {
	d := &broker.Delivery{Identity: maphash.String(seed, id)}
	d.MessageId, d.Redelivered = id, again
	return d
}

func (m *model) begin() {
	m.session = m.memory.Session(m.prefetch)
	m.unacked, m.frames, m.received, m.window = map[*taken]*copied{}, nil, 0, 0
}

// register pauses and goes on: the broker reads all frames, and then has another consumer, with an empty window.
func (m *model) register() {
	answered := m.session.Registering(m.received)
	for len(m.frames) > 0 {
		m.process()
	}
	m.consumer++
	m.window = 0
	answered()
}

func (m *model) deliver() {
	if len(m.ready) == 0 || m.window == m.prefetch {
		return
	}
	d := m.ready[0]
	m.ready = m.ready[1:]
	m.received++
	m.window++
	r := &taken{Delivery: delivered(d.id, d.redelivered), session: m.session, consumer: m.consumer}
	m.unacked[r] = d
	m.pending = append(m.pending, r)
}

// pick removes any element.
func pick[T any](m *model, from *[]T) (one T, ok bool) {
	if len(*from) == 0 {
		return one, false
	}
	i := m.random.IntN(len(*from))
	one = (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return one, true
}

// attempt gives a message to the app, unless its outcome is known.
func (m *model) attempt(r *taken) {
	r.known = m.memory.Seen(r.Delivery)
	if r.known.Wait != nil {
		m.waiting = append(m.waiting, r)
		return
	}
	r.session.Begin(&r.known)
	if r.known.Outcome != nil {
		m.settle(r, r.known.Outcome)
		return
	}
	m.posts[r.MessageId]++
	m.posted = append(m.posted, r)
}

var errLost = errors.New("the session has ended")

// settle ends a delivery: on a lost session nothing is sent.
func (m *model) settle(r *taken, o *message.Outcome) {
	if r.session != m.session {
		r.session.Ended(r.known, o, errLost)
		return
	}
	m.frames = append(m.frames, r)
	r.session.Ended(r.known, o, nil)
}

// resume lets the copies go on whose verdicts are there.
func (m *model) resume() {
	for _, r := range slices.Clone(m.waiting) {
		select {
		case <-r.known.Wait:
			m.waiting = slices.DeleteFunc(m.waiting, func(w *taken) bool { return w == r })
			m.attempt(r)
		default:
		}
	}
}

// process makes the broker read one ack.
func (m *model) process() {
	if len(m.frames) > 0 {
		if delete(m.unacked, m.frames[0]); m.frames[0].consumer == m.consumer {
			m.window--
		}
		m.frames = m.frames[1:]
	}
}

// cut ends the session. A worker may have taken a message of it just before, and finds out that the session has ended.
func (m *model) cut() {
	lost := m.session
	if m.random.IntN(2) == 0 {
		if r, ok := pick(m, &m.pending); ok {
			defer m.unstarted(r)
		}
	}
	for _, r := range m.pending { // of some it was asked what is known, as in order or for a batch
		known := m.memory.Of(r.Delivery)
		if m.random.IntN(2) == 0 {
			known = m.memory.Seen(r.Delivery)
		}
		m.memory.Returned(known)
	}
	lost.Lose(m.received)
	m.pending, m.waiting = nil, nil // a copy that waited has no stake in its verdict
	for _, d := range m.unacked {
		d.redelivered = true
		m.ready = slices.Insert(m.ready, 0, d)
	}
	m.begin()
}

func (m *model) unstarted(r *taken) {
	r.known = m.memory.Seen(r.Delivery)
	if r.known.Wait == nil { // else another copy takes it
		r.session.Begin(&r.known)
		m.settle(r, r.known.Outcome)
	}
}

// step does one thing that can happen.
func (m *model) step(n int) {
	switch {
	case n == 1:
		m.register()
	case n < 15:
		m.deliver()
	case n < 28:
		if r, ok := pick(m, &m.pending); ok {
			m.attempt(r)
		}
	case n < 40:
		if r, ok := pick(m, &m.posted); ok {
			m.settle(r, acked)
		}
	default:
		m.process()
	}
	m.resume()
}

// TestEveryMessageIsPostedOnce: with cuts and pauses at any time, any order of endings and messages that are equal, each message is
// POSTed once; one without an id at least once.
func TestEveryMessageIsPostedOnce(t *testing.T) {
	t.Parallel()
	ids := []string{"", "a", "b", "c", "d", "e"}
	for seed := range uint64(300) {
		m := &model{random: rand.New(rand.NewPCG(seed, 1)), posts: map[string]int{}, memory: New(nil, nil)}
		m.prefetch = 1 + m.random.IntN(20)
		m.begin()
		published := map[string]int{}
		for n := range 2000 {
			if n < 1000 && m.random.IntN(4) == 0 {
				id := ids[m.random.IntN(len(ids))]
				if m.random.IntN(2) == 0 {
					id = fmt.Sprint("own ", n)
				}
				published[id]++
				m.ready = append(m.ready, &copied{id: id})
			}
			if step := m.random.IntN(50); step == 0 && n < 1900 {
				m.cut()
			} else {
				m.step(step)
			}
		}
		for len(m.ready)+len(m.pending)+len(m.posted)+len(m.waiting)+len(m.frames) > 0 {
			for _, step := range []int{0, 15, 28, 40} {
				m.step(step)
			}
		}
		for id, n := range published {
			if m.posts[id] < n || m.posts[id] > n && id != "" {
				t.Fatalf("seed %d, prefetch %d: %q was POSTed %d times, published %d times", seed, m.prefetch, id, m.posts[id], n)
			}
		}
		if len(m.memory.messages) > 0 && m.memory.posts+m.memory.outcomes == 0 {
			t.Fatalf("seed %d: %d entries say nothing", seed, len(m.memory.messages))
		}
	}
}
