package consume

import (
	"sync"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	// rememberedFor is how long a copy is expected that does not come: the ack has arrived, or another replica has the
	// message. The broker may take a minute to notice that a connection was lost.
	rememberedFor = 10 * time.Minute

	// maxRemembered bounds the copies that are expected, and with them the memory: about 8 MB, or 25 MB if all failed.
	// Half of it is only for those with an outcome.
	maxRemembered = 1 << 16

	// maxTexts bounds the answers and problems of these outcomes, in bytes. A copy whose texts find no room is POSTed.
	maxTexts = 4 << 20
)

// remembered are the messages that the broker will deliver again, as far as this process can know, and the outcomes of
// attempts whose settlements may have been lost with a session. Such an outcome settles the copy, which is not POSTed.
type remembered struct {
	mu    sync.Mutex
	fates map[uint64]*fate // by record.id
	held  int              // copies in fates, without those of attempts under way
	texts int              // bytes in their outcomes, see texts
	swept time.Time
}

// fate says what to do with the copies of equal messages. Those to POST go first: an outcome may be of a message whose
// ack has arrived, and must not settle a message that the app has not seen.
type fate struct {
	post int                // copies to POST: they returned to the queue without an outcome
	out  int                // attempts of lost sessions that have not ended
	over chan struct{}      // closed when one of these ends; nil: no copy waits for it
	done []*message.Outcome // each settles a copy
	at   time.Time          // of the last change
}

// inFlight is what a session has in flight: attempts that have not ended, and settlements that may not have arrived.
// Those before the last registration of the consumer have: the broker has answered it. Of those behind it all but the
// last prefetch of the messages received since: otherwise the broker would not have delivered so many.
type inFlight struct {
	all  *remembered    // its mutex guards the fields below
	out  map[uint64]int // attempts by record.id
	sent []sent         // the last ones, at most prefetch: the n-th is at n modulo prefetch
	n    int            // settlements so far
	lost bool

	registered, before int // settlements, and messages received, when the consumer was registered
}

// sent is a settlement; without an outcome a copy of its message is POSTed.
type sent struct {
	id      uint64
	outcome *message.Outcome
}

func newInFlight(all *remembered, prefetch int) *inFlight {
	return &inFlight{all: all, out: map[uint64]int{}, sent: make([]sent, prefetch)}
}

// register is called before the consumer is registered again, with a window of its own, and returns a function to call
// when the broker has answered: only then it has read the settlements before. received is how many messages the broker
// has delivered until the call.
func (h *inFlight) register(received int) (answered func()) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	n := h.n
	return func() {
		h.all.mu.Lock()
		defer h.all.mu.Unlock()
		h.registered, h.before = n, received
	}
}

// recall is called before a message is POSTed. known means that it must not be, because it was on a session that was
// lost. o is the outcome of that attempt; if it has none yet, o gives the message back, and r.verdict is closed when it
// may have one. For a message that has passed it does nothing.
func (c *Consumer) recall(r *record, m *message.Message) (o message.Outcome, known bool) {
	if r.passed {
		return o, false
	}
	k := &c.remembered
	k.mu.Lock()
	defer k.mu.Unlock()
	switch f := k.fates[r.id]; {
	case f == nil || !m.Redelivered || f.out == 0 && time.Since(f.at) > rememberedFor:
	case r.held != nil && r.held.recalled: // an attempt on this delivery failed
	case f.post > 0:
		f.post--
		k.held--
	case len(f.done) > 0:
		o, known = *f.done[0], true
		o.Remembered, o.Elapsed = true, 0
		k.texts -= texts(f.done[0])
		f.done = f.done[1:]
		k.held--
		c.metrics.remembered.Inc()
	case f.out > 0:
		if f.over == nil {
			f.over = make(chan struct{})
		}
		r.verdict = f.over
		return message.Outcome{Failure: message.FailureUndispatched}, true
	}
	k.tidy(r.id)
	r.passed = true
	if r.held != nil {
		r.held.recalled = true
	}
	if h := r.session.settler.inFlight; h.lost {
		k.fate(r.id).out++
	} else {
		h.out[r.id]++
	}
	return o, known
}

// await waits beside the workers for the end of the attempt on a lost session, and settles the copy by its outcome.
// Without one the copy is given back: its next delivery is POSTed.
func (s *session) await(r *record, by topology.Settlement) {
	over := r.verdict
	r.verdict = nil
	select {
	case <-over:
		if r.failed == 0 { // until now that attempt had those before it
			r.read(s.c.o.Plan)
		}
		o, known := s.c.recall(r, &r.m)
		if !known {
			o.Failure = message.FailureUndispatched
		}
		s.c.judge(r, o)
		return
	case <-s.done:
	case <-s.c.interrupt.Done():
	}
	s.settle(r, by)
}

// end ends an attempt. all is locked.
func (h *inFlight) end(id uint64) {
	if !h.lost {
		if h.out[id]--; h.out[id] == 0 {
			delete(h.out, id)
		}
		return
	}
	f := h.all.fate(id)
	f.out--
	if f.over != nil {
		close(f.over)
		f.over = nil
	}
	h.all.tidy(id)
}

// again ends an attempt whose delivery stays unacked.
func (h *inFlight) again(r *record) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if r.passed {
		h.end(r.id)
	}
}

// settled ends a delivery; unsent is why its settlement could not be sent.
func (h *inFlight) settled(e *ending, unsent error) {
	returns := unsent != nil || e.final == topology.FinalRequeue || e.final == topology.FinalDelay
	k := h.all
	k.mu.Lock()
	defer k.mu.Unlock()
	var last sent
	if e.id != 0 { // recall has passed it
		switch {
		case returns || e.outcome != nil && e.named && h.lost:
			k.expect(e.id, e.outcome)
		case e.named: // without an id an equal message may be on its way here that was never seen
			last = sent{e.id, e.outcome}
		}
		h.end(e.id)
	}
	h.sent[h.n%len(h.sent)] = last
	h.n++
}

// lose makes what was in flight known to later sessions. received is how many messages the broker has delivered.
func (h *inFlight) lose(received int) {
	k := h.all
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.lost {
		return
	}
	h.lost = true
	for id, n := range h.out {
		k.fate(id).out += n
	}
	h.out = nil
	arrived := h.registered + max(0, received-h.before-len(h.sent))
	for i := max(arrived, h.n-len(h.sent)); i < h.n; i++ {
		if last := h.sent[i%len(h.sent)]; last.outcome != nil {
			k.expect(last.id, last.outcome)
		}
	}
}

// untaken is settled for a delivery without an attempt. A further copy is expected already.
func (s *session) untaken(d delivery) {
	if d.Delivery == nil {
		return
	}
	k := &s.c.remembered
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fates[d.Identity] == nil || !d.Redelivered {
		k.expect(d.Identity, nil)
	}
}

// expect makes a copy known that will be delivered: o settles it; nil: it is POSTed.
func (k *remembered) expect(id uint64, o *message.Outcome) {
	if time.Since(k.swept) > time.Minute {
		k.swept = time.Now()
		for id, f := range k.fates {
			if f.out == 0 && time.Since(f.at) > rememberedFor {
				k.held -= f.post + len(f.done)
				for _, o := range f.done {
					k.texts -= texts(o)
				}
				delete(k.fates, id)
			}
		}
	}
	if o != nil && k.texts+texts(o) > maxTexts {
		o = nil
	}
	switch {
	case k.held >= maxRemembered || o == nil && k.held >= maxRemembered/2:
		return
	case o == nil:
		k.fate(id).post++
	default:
		f := k.fate(id)
		f.done = append(f.done, o)
		k.texts += texts(o)
	}
	k.held++
}

func (k *remembered) fate(id uint64) *fate {
	f := k.fates[id]
	if f == nil {
		if k.fates == nil {
			k.fates = map[uint64]*fate{}
		}
		f = &fate{}
		k.fates[id] = f
	}
	f.at = time.Now()
	return f
}

// tidy forgets a fate that says nothing.
func (k *remembered) tidy(id uint64) {
	if f := k.fates[id]; f != nil && f.post+f.out+len(f.done) == 0 {
		delete(k.fates, id)
	}
}
