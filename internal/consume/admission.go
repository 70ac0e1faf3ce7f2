package consume

import "time"

// admit waits until the rates of the consumer's options let n more messages through, and the slots one more POST. It
// returns false when the gate closes, the consumer stops or the session ends: then the slots are given back, and of the
// rates only what it still waited for.
func (s *session) admit(n int) bool {
	if s.pump.admitted {
		return true
	}
	began := time.Now()
	defer func() { s.c.metrics.throttled.Add(time.Since(began).Seconds()) }()
	for _, limit := range s.c.o.Rates {
		token := limit.ReserveN(began, n) // n is at most its burst, see New
		if d := token.Delay(); d > 0 && !s.awaitEither(time.After(d), nil) {
			token.Cancel()
			return false
		}
	}
	for i, slots := range s.c.o.Slots {
		if !s.awaitEither(nil, slots) {
			free(s.c.o.Slots[:i])
			return false
		}
	}
	s.pump.admitted = true
	return true
}

// awaitEither waits for due, or takes a slot as soon as one is free. Consumers that wait for a slot get one in the
// order in which they began to wait: Go serves a channel that way, and each consumer waits for one at a time.
func (s *session) awaitEither(due <-chan time.Time, slots chan<- struct{}) bool {
	flow := s.c.o.Flow
	for changed := flow.Changed(); flow.Open(); changed = flow.Changed() {
		select {
		case <-due:
			return true
		case slots <- struct{}{}:
			return true
		case <-changed:
		case <-s.c.stop.stopping:
			return false
		case <-s.done:
			return false
		case <-s.leaving.Done():
			return false
		}
	}
	return false
}

// free gives a slot of each back.
func free(all []chan struct{}) {
	for _, slots := range all {
		<-slots
	}
}
