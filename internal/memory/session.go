package memory

import (
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Session is what one session of the broker has in flight: attempts that have not ended, and settlements that may not
// have arrived. Those before the last registration of the consumer have: the broker has answered it. Of those behind it
// all but the last prefetch of the messages received since: otherwise the broker would not have delivered so many. What
// was not settled at the registration holds no place of the new window: as many settlements more may not have arrived.
type Session struct {
	prefetch int
	all      *Memory        // its mutex guards the fields below
	out      map[uint64]int // attempts by identity
	sent     []sent         // the last ones: the n-th is at n modulo the length
	n        int            // settlements so far
	lost     bool

	registered, before int // settlements, and messages received, when the consumer was registered
}

// sent is a settlement; zero: if it is lost there is nothing to remember.
type sent struct {
	key
	failed  int
	outcome *message.Outcome
}

// Session returns an empty one.
func (m *Memory) Session(prefetch int) *Session {
	return &Session{prefetch: prefetch, all: m, out: map[uint64]int{}, sent: make([]sent, prefetch)}
}

// Registering is called before the consumer is registered again, with a window of its own, and returns a function to
// call when the broker has answered: only then it has read the settlements before. received is how many messages the
// broker has delivered until the call.
func (s *Session) Registering(received int) (answered func()) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	n := s.n
	if room := s.prefetch + received - n; room > len(s.sent) { // for a window and all that is not settled
		more := make([]sent, room)
		for i := max(0, n-len(s.sent)); i < n; i++ {
			more[i%room] = s.sent[i%len(s.sent)]
		}
		s.sent = more
	}
	return func() {
		s.all.mu.Lock()
		defer s.all.mu.Unlock()
		s.registered, s.before = n, received
	}
}

// Begin begins an attempt on a message that was seen. One that has begun goes on.
func (s *Session) Begin(k *Known) {
	if k.begun {
		return
	}
	k.begun = true
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.lost {
		s.all.entry(k.id).out++
	} else {
		s.out[k.id]++
	}
}

// Again ends an attempt whose delivery stays unacked.
func (s *Session) Again(k *Known) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.end(k)
	k.begun, k.Outcome = false, nil
}

// Returns ends a delivery that the broker delivers again, before that can happen. o is what settles the next delivery;
// nil: it is POSTed. Sent has to be called behind the frame.
func (s *Session) Returns(k Known, final topology.Final, o *message.Outcome) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if final == topology.FinalDelay {
		s.all.delayed(&k)
	} else {
		s.all.returned(&k, o)
	}
	s.end(&k)
}

// Sent counts a settlement that returns its delivery.
func (s *Session) Sent() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.count(sent{})
}

// Ended ends a delivery behind its ack or reject, with the error if that could not be sent. o is what settles a copy if
// the settlement does not arrive; nil: it is POSTed.
func (s *Session) Ended(k Known, o *message.Outcome, unsent error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	var last sent
	switch {
	case unsent != nil, o != nil && k.named && k.begun && s.lost:
		s.all.returned(&k, o)
	case k.named && k.begun: // without an id an equal message may be on its way here that was never seen
		last = sent{k.key, k.Failed, o}
	}
	s.end(&k)
	s.count(last)
}

func (s *Session) count(last sent) {
	s.sent[s.n%len(s.sent)] = last
	s.n++
}

// end ends an attempt. all is locked.
func (s *Session) end(k *Known) {
	if !k.begun {
		return
	}
	if !s.lost {
		if s.out[k.id]--; s.out[k.id] == 0 {
			delete(s.out, k.id)
		}
		return
	}
	e := s.all.entry(k.id)
	e.out--
	if e.over != nil {
		close(e.over)
		e.over = nil
	}
	s.all.tidy(k.id)
}

// Lose makes what was in flight known to later sessions. received is how many messages the broker has delivered.
func (s *Session) Lose(received int) {
	m := s.all
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.lost {
		return
	}
	s.lost = true
	for id, n := range s.out {
		m.entry(id).out += n
	}
	s.out = nil
	arrived := s.registered + max(0, received-s.before-s.prefetch)
	for i := max(arrived, s.n-len(s.sent)); i < s.n; i++ {
		if last := s.sent[i%len(s.sent)]; last.outcome != nil {
			m.returned(&Known{Failed: last.failed, key: last.key}, last.outcome)
		}
	}
}
