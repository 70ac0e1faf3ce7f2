package judge

import (
	"testing"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// forgetful makes the story one in which the process remembers the attempts, and a message failed once more than
// without the fault that happened after its first attempt: the next one is counted like the first.
func (s *story) forgetful(kind, class string) {
	s.run.Forgets, s.run.Limit = true, 20*retries
	s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: kind, Class: class, Start: at(40 * time.Second),
		End: at(40*time.Second + delay), Recovered: at(40*time.Second + delay)})
	s.drop(given, true, false)
	s.published[given].Sent, s.published[given].Done = at(39*time.Second+delay), at(39*time.Second+delay)
	for n, count := range []int{0, 0, 1, 2} {
		s.receive(given, 40*time.Second+time.Duration(n)*delay, count, 500)
	}
}

// ackLost lets a message that was parked come again, beside the cut of the story or not.
func (s *story) ackLost(when time.Duration) {
	s.forgetful("app-term", ClassApp)
	s.drop(given, true, false)
	for n, count := range []int{0, 1, 2, 0, 1, 2} {
		s.receive(given, when+time.Duration(n-2)*delay, count, 500)
	}
}

// atLimit lets the broker dead-letter a message after so many failed attempts, of which the process remembered none.
func (s *story) atLimit(failures int) {
	s.forgetful("sidecar-kill", ClassSidecar)
	for n := range failures {
		s.receive(given, 40*time.Second+4*delay+time.Duration(n)*time.Millisecond, 0, 500)
	}
	for i := range s.parked {
		if s.parked[i].Seq == given {
			s.parked[i].Headers = map[string]string{plan.HeaderMark: plan.Mark(plan.ID("r", given)), "x-last-death-reason": "delivery_limit"}
		}
	}
}

// TestForgets: where attempts are remembered by a process its end gives them back, and nothing else does.
func TestForgets(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"given back by a kill", func(s *story) { s.forgetful("sidecar-kill", ClassSidecar) }, nil},
		{"given back by a stop", func(s *story) { s.forgetful(SidecarEnded, ClassNone) }, nil},
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
		{"forgotten after a cut", func(s *story) {
			s.forgetful("cut", ClassSidecar)
			s.of(given, 4).Count, s.of(given, 4).Attempt = 1, 2
			s.of(given, 6).Count, s.of(given, 6).Attempt = 0, 1
		}, []string{"I5", "I6"}},
		{"forgotten with a lost ack", func(s *story) { s.ackLost(60 * time.Second) }, nil},
		{"forgotten with an ack that was not lost", func(s *story) { s.ackLost(90 * time.Second) }, []string{"I5", "I6"}},
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
		{"dead-lettered at the limit", func(s *story) { s.atLimit(36) }, nil},
		{"dead-lettered before the limit", func(s *story) { s.atLimit(30) }, []string{"I4"}},
	})
}
