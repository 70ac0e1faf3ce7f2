package consume

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// model is a queue, a link and an app, and what is in flight between them, without time.
type model struct {
	t        *testing.T
	random   *rand.Rand
	c        *Consumer
	prefetch int

	ready   []*copied
	unacked map[*record]*copied // of the session
	frames  []*record           // acks on the link
	session *session
	done    chan struct{}

	pending  []*record // delivered, and not given to the app
	posted   []*record // the app has them; also of lost sessions
	waiting  []*record
	posts    map[string]int
	received int
}

// copied is a message as the queue has it.
type copied struct {
	id          string
	redelivered bool
}

func (m *model) begin() {
	m.done = make(chan struct{})
	m.session = &session{c: m.c, done: m.done, settler: newSettler(&counting{}, m.prefetch, m.c.metrics, &m.c.remembered)}
	m.unacked, m.frames, m.received = map[*record]*copied{}, nil, 0
}

func (m *model) deliver() {
	if len(m.ready) == 0 || len(m.unacked) == m.prefetch {
		return
	}
	d := m.ready[0]
	m.ready = m.ready[1:]
	m.received++
	r := &record{}
	one := &broker.Delivery{Identity: identity(d.id)}
	one.MessageId, one.Body, one.Redelivered = d.id, []byte("x"), d.redelivered
	r.begin(delivery{one, m.session, nil})
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
func (m *model) attempt(from *[]*record) {
	r, ok := pick(m, from)
	if !ok {
		return
	}
	r.read(m.c.o.Plan)
	o, known := m.c.recall(r, &r.m)
	switch {
	case r.verdict != nil:
		m.waiting = append(m.waiting, r)
	case known:
		m.settle(r, &o)
	default:
		m.posts[r.m.MessageID]++
		m.posted = append(m.posted, r)
	}
}

// settle ends a delivery: on a lost session nothing is sent.
func (m *model) settle(r *record, o *message.Outcome) {
	e := ending{id: r.id, named: r.m.MessageID != "", outcome: o, final: topology.FinalAck}
	if r.session != m.session {
		r.session.settler.inFlight.settled(&e, broker.ErrDisconnected)
		return
	}
	m.frames = append(m.frames, r)
	r.session.settler.inFlight.settled(&e, nil)
}

// resume lets the copies go on whose verdicts are there.
func (m *model) resume() {
	for _, r := range slices.Clone(m.waiting) {
		select {
		case <-r.verdict:
			r.verdict = nil
			m.waiting = slices.DeleteFunc(m.waiting, func(w *record) bool { return w == r })
			one := []*record{r}
			m.attempt(&one)
		default:
		}
	}
}

// process makes the broker read one ack.
func (m *model) process() {
	if len(m.frames) > 0 {
		delete(m.unacked, m.frames[0])
		m.frames = m.frames[1:]
	}
}

// cut ends the session. A worker may have taken a message of it just before.
func (m *model) cut() {
	close(m.done)
	lost := m.session
	if m.random.IntN(2) == 0 {
		if r, ok := pick(m, &m.pending); ok {
			defer m.unstarted(r)
		}
	}
	for _, r := range m.pending {
		lost.untaken(delivery{r.delivery, lost, nil})
	}
	lost.settler.inFlight.lose(m.received)
	m.pending, m.waiting = nil, nil // a copy that waited has no stake in its verdict
	for _, d := range m.unacked {
		d.redelivered = true
		m.ready = slices.Insert(m.ready, 0, d)
	}
	m.begin()
}

// unstarted is a worker that finds out that the session has ended.
func (m *model) unstarted(r *record) {
	r.read(m.c.o.Plan)
	o, known := m.c.recall(r, &r.m)
	switch {
	case r.verdict != nil: // another copy takes it
	case known:
		m.settle(r, &o)
	default:
		m.settle(r, nil)
	}
}

// TestEveryMessageIsPostedOnce: with cuts at any time, any order of endings and messages that are equal, each message is
// POSTed once; one without an id at least once.
func TestEveryMessageIsPostedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), posts: map[string]int{}}
		m.prefetch = 1 + m.random.IntN(20)
		m.c = New(benchOptions(t, 1))
		m.begin()
		published := map[string]int{}
		ids := []string{"", "a", "b", "c", "d", "e"}
		for n := range 2000 {
			if n < 1000 && m.random.IntN(4) == 0 {
				id := ids[m.random.IntN(len(ids))]
				if m.random.IntN(2) == 0 {
					id = fmt.Sprint("own ", n)
				}
				published[id]++
				m.ready = append(m.ready, &copied{id: id})
			}
			switch step := m.random.IntN(50); {
			case step == 0 && n < 1900:
				m.cut()
			case step < 15:
				m.deliver()
			case step < 28:
				m.attempt(&m.pending)
			case step < 40:
				if r, ok := pick(m, &m.posted); ok {
					m.settle(r, &plain[0])
				}
			default:
				m.process()
			}
			m.resume()
		}
		for len(m.ready)+len(m.pending)+len(m.posted)+len(m.waiting)+len(m.frames) > 0 {
			m.deliver()
			m.attempt(&m.pending)
			if r, ok := pick(m, &m.posted); ok {
				m.settle(r, &plain[0])
			}
			m.process()
			m.resume()
		}
		for id, n := range published {
			if m.posts[id] < n || m.posts[id] > n && id != "" {
				t.Errorf("seed %d, prefetch %d: %q was POSTed %d times, published %d times", seed, m.prefetch, id, m.posts[id], n)
			}
		}
		m.c.Drain(t.Context())
		if t.Failed() {
			return
		}
	}
}

func TestLastingOutcomes(t *testing.T) {
	t.Parallel()
	lost := topology.Settlement{}.Released(message.ReasonSessionLost)
	with := func(s topology.Settlement, o message.Outcome) topology.Settlement {
		s.Verdict.Cause = o
		return s
	}
	pub, ack := &message.Publication{}, topology.Settlement{Final: topology.FinalAck}
	for name, c := range map[string]struct {
		by      topology.Settlement
		counted bool
		want    *message.Outcome
	}{
		"acked":              {by: with(ack, answer(204)), want: &message.Outcome{Status: 204, RetryAfter: -1}},
		"acked by its word":  {by: with(ack, message.Outcome{Status: 500, Disposition: message.DispositionAck, Detail: "known"}), want: &message.Outcome{Status: 500, Disposition: message.DispositionAck, Detail: "known"}},
		"rejected":           {by: with(topology.Settlement{Final: topology.FinalReject}, message.Outcome{Status: 503}), want: &message.Outcome{Status: 503}},
		"too late":           {by: with(lost, message.Outcome{Status: 503}), want: &message.Outcome{Status: 503}},
		"parked":             {by: topology.Settlement{Final: topology.FinalAck, Publish: pub}, want: &replaced},
		"waits elsewhere":    {by: topology.Settlement{Final: topology.FinalAck, Detour: pub}, want: &replaced},
		"too early":          {by: with(requeued(message.ReasonTooEarly, 0), answer(425))},
		"delayed by a queue": {by: with(topology.Settlement{Final: topology.FinalDelay}, answer(503))},
		"counted in order":   {by: with(lost, answer(503)), counted: true},
		"a panic":            {by: lost},
		"a panic in a batch": {by: with(lost, message.Outcome{Failure: message.FailurePanic})},
		"interrupted":        {by: with(lost, message.Outcome{Failure: message.FailureInterrupted})},
		"not POSTed":         {by: with(ack, message.Outcome{Failure: message.FailureForeign})},
		"the app is away":    {by: with(topology.Settlement{}.Released(message.ReasonAppDown), message.Outcome{Failure: message.FailureRefused})},
	} {
		r := &record{counted: c.counted}
		if got := r.lasting(&c.by); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// knows reports whether the outcome of a copy is remembered, which is then delivered to a session.
func (c *Consumer) knows(id uint64) bool {
	r := &record{id: id, m: message.Message{Redelivered: true}}
	r.session = &session{settler: &settler{inFlight: newInFlight(&c.remembered, 1)}}
	_, known := c.recall(r, &r.m)
	return known
}

// TestExpectedCopiesAreBounded: in time, and in number.
func TestExpectedCopiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(benchOptions(t, 1))
		defer c.Drain(t.Context())
		k := &c.remembered
		k.expect(1, &plain[0])
		k.expect(2, &plain[0])
		const long = maxRemembered // its attempt goes on
		k.fate(long).out++
		time.Sleep(rememberedFor)
		if !c.knows(1) {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Second)
		if c.knows(2) {
			t.Error("not forgotten")
		}
		for id := range uint64(maxRemembered) {
			k.expect(id, nil)
		}
		if k.held != maxRemembered/2 || k.fates[2].done != nil {
			t.Errorf("%d copies are expected", k.held)
		}
		if !c.knows(long) {
			t.Error("forgotten while its attempt goes on")
		}
		k.fate(long).out--
		k.tidy(long)
		for id := range uint64(maxRemembered) {
			k.expect(id, &message.Outcome{Answer: "text"})
		}
		if k.held != maxRemembered {
			t.Errorf("%d copies are expected, want %d", k.held, maxRemembered)
		}
		time.Sleep(rememberedFor + time.Second)
		if k.expect(1, &plain[0]); k.held != 1 || k.texts != 0 || len(k.fates) != 1 {
			t.Errorf("%d copies of %d messages are expected, with %d bytes; want 1, 1, 0", k.held, len(k.fates), k.texts)
		}
	})
}

// TestAWindowOfItsOwn: messages of an earlier registration take nothing of the window, so that many that came later
// prove nothing about their acks; the answer to the registration proves those sent before. An ack that is sent behind the
// loss has not arrived, and settles no copy if its message has no id: another message may be equal.
func TestAWindowOfItsOwn(t *testing.T) {
	t.Parallel()
	var all remembered
	h := newInFlight(&all, 2)
	settle := func(id uint64) { h.settled(&ending{id: id, named: true, outcome: &plain[0]}, nil) }
	h.register(0)()
	h.out = map[uint64]int{1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
	settle(1)
	h.register(3)()
	settle(2)
	settle(3)
	h.lose(5)
	h.lose(5)
	settle(4)
	h.settled(&ending{id: 5, outcome: &plain[0]}, nil)
	for id, want := range map[uint64]int{1: 0, 2: 1, 3: 1, 4: 1, 5: 0} {
		if f := all.fates[id]; (f == nil) != (want == 0) || f != nil && len(f.done) != want {
			t.Errorf("message %d: %+v, want %d outcomes", id, f, want)
		}
	}
}

// TestAnUnansweredRegistration: a link that is cut or frozen during the registration proves nothing about the acks sent
// before it.
func TestAnUnansweredRegistration(t *testing.T) {
	t.Parallel()
	var all remembered
	h := newInFlight(&all, 2)
	h.register(0)()
	h.out[1] = 1
	h.settled(&ending{id: 1, named: true, outcome: &plain[0]}, nil)
	h.register(1)
	h.lose(1)
	if f := all.fates[1]; f == nil || len(f.done) != 1 {
		t.Errorf("%+v, want an outcome for the copy", f)
	}
}

// TestSettledWhileRegistering: what is sent while the consumer still registers has not arrived when the session is lost.
func TestSettledWhileRegistering(t *testing.T) {
	t.Parallel()
	var all remembered
	h := newInFlight(&all, 4)
	h.out[1]++
	answered := h.register(1)
	h.settled(&ending{id: 1, named: true, outcome: &plain[0], final: topology.FinalAck}, nil)
	answered()
	h.lose(1)
	if f := all.fates[1]; f == nil || len(f.done) != 1 {
		t.Errorf("%+v", f)
	}
}
