package judge

import (
	"testing"
	"time"

	"sidecar/test/chaos/plan"
)

// spoiled puts a request in front of the attempts of a message in which it was one of three and that failed as a whole.
func (s *story) spoiled(seq int) {
	s.gather()
	first := s.of(seq, 0)
	s.receive(seq, time.Duration(first.At-at(0))-time.Millisecond, 0, 500)
	s.whole(3)
}

// whole makes the last request a batch of so many messages that failed as a whole.
func (s *story) whole(of int) {
	begun := &s.receipts[len(s.receipts)-2]
	begun.Of, begun.Whole = of, true
}

// gather makes every request a batch, of one message so far.
func (s *story) gather() {
	s.run.Gather = 3
	for i := range s.receipts {
		if r := &s.receipts[i]; r.Status == 0 && r.Of == 0 {
			r.Of = 1
		}
	}
}

// TestBatches: a batch that fails as a whole is no attempt of its messages, and each is alone from then on.
func TestBatches(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"the app was killed over a batch that it failed, and the message is gone", func(s *story) {
			s.spoiled(okay)
			s.receipts = s.receipts[2 : len(s.receipts)-1] // its attempt
		}, []string{"I2"}},
		{"counted for a message that fails by itself", func(s *story) {
			s.spoiled(failed)
			for n := range 3 {
				s.of(failed, 2*n).Count, s.of(failed, 2*n).Attempt = min(n+1, retries), min(n+2, retries+1)
			}
		}, []string{"I5", "I6", "I7"}},
		{"not alone after it", func(s *story) {
			s.spoiled(okay)
			s.of(okay, 0).Of = 2
		}, []string{"I18"}},
		{"delivered before and not alone", func(s *story) {
			s.gather()
			s.of(okay, 0).Of, s.of(okay, 0).Again = 2, true
		}, []string{"I18"}},
		{"acked because of a batch that failed", func(s *story) {
			s.spoiled(okay)
			s.receipts = s.receipts[2:]
		}, []string{"I2"}},
		{"parked by the failures of batches", func(s *story) {
			s.gather()
			s.drop(given, true, false)
			for n := range retries + 1 {
				s.receive(given, 3*time.Second+time.Duration(n)*delay, 0, 500)
				s.whole(2)
			}
		}, []string{"I5", "I7", "I18"}},
		{"a request that is no batch", func(s *story) {
			s.gather()
			s.of(okay, 0).Of = 0
		}, []string{"I18"}},
		{"a message that is not ours", func(s *story) {
			s.gather()
			s.receipts[0].ID, s.receipts[0].Of = "x-0", 2
		}, []string{"I1", "I3"}},
	})
}

// forgetful makes the story one in which the process remembers the attempts, and a message failed once more than
// without the fault that happened after its first attempt: the next one is counted like the first.
func (s *story) forgetful(kind, class string) {
	s.run.Forgets, s.run.Limit = true, 20*retries
	s.fault(kind, class, 40*time.Second, 40*time.Second+delay)
	s.drop(given, true, false)
	s.published[given].Sent, s.published[given].Done = at(39*time.Second+delay), at(39*time.Second+delay)
	for n, count := range []int{0, 0, 1, 2} {
		s.receive(given, 40*time.Second+time.Duration(n)*delay, count, 500)
	}
}

// TestForgets: where attempts are remembered by a process its end gives them back, and nothing else does.
func TestForgets(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"given back by a stop, though headers say the count", func(s *story) {
			s.forgetful(SidecarEnded, ClassNone)
			s.run.Forgets = false
		}, []string{"I5", "I6"}},
		{"parked too early after a kill", func(s *story) {
			s.forgetful("sidecar-kill", ClassSidecar)
			s.drop(given, true, false)
			s.receive(given, 40*time.Second, 0, 500)
			s.receive(given, 40*time.Second+delay, 2, 500)
		}, []string{"I7"}},
		{"forgotten with an ack that was not lost", func(s *story) {
			s.forgetful("app-term", ClassApp)
			s.drop(given, true, false)
			for n, count := range []int{0, 1, 2, 0, 1, 2} { // long after the cut of the story
				s.receive(given, 90*time.Second+time.Duration(n-2)*delay, count, 500)
			}
		}, []string{"I5", "I6"}},
		{"given back by a second replica", func(s *story) {
			s.forgetful("app-term", ClassApp)
			s.run.Replicas = 2
		}, nil},
		{"counted by two replicas in turn", func(s *story) {
			s.forgetful("app-term", ClassApp)
			s.run.Replicas, s.run.Concurrency = 2, 1
			s.drop(given, true, true)
			s.published[given].Plan = plan.Plan{Kind: plan.Fail, K: 12, Status: 500}.String()
			for n := range 13 {
				s.receive(given, 40*time.Second+time.Duration(n)*delay/3, n%2*retries, map[bool]int{false: 500, true: 200}[n == 12])
			}
		}, nil},
	})
}
