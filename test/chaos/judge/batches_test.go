package judge

import (
	"testing"
	"time"

	"sidecar/test/chaos/ledger"
)

// spoiled puts a request in front of the attempts of a message in which it was one of three and that failed as a whole.
func (s *story) spoiled(seq int) {
	s.gather()
	first := s.of(seq, 0)
	s.receive(seq, time.Duration(first.At-at(0))-time.Millisecond, 0, 500)
	begun := &s.receipts[len(s.receipts)-2]
	begun.Of, begun.Whole = 3, true
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

// appKilled adds a fault of the app in the life of the first message.
func (s *story) appKilled() {
	s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: "app-kill", Class: ClassApp, Start: at(time.Second / 2), End: at(time.Second), Recovered: at(time.Second + 1)})
}

// TestBatches: a batch that fails as a whole is no attempt of its messages, and each is alone from then on.
func TestBatches(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"failed as a whole", func(s *story) { s.spoiled(okay) }, nil},
		{"and its messages fail by themselves", func(s *story) { s.spoiled(failed); s.spoiled(given) }, nil},
		{"without an answer", func(s *story) {
			s.spoiled(okay)
			s.receipts[len(s.receipts)-1].Status = ledger.Hung
		}, nil},
		{"the app was killed while it failed", func(s *story) {
			s.spoiled(okay)
			s.receipts = s.receipts[:len(s.receipts)-1]
		}, nil},
		{"the app was killed over a batch, and may have answered", func(s *story) {
			s.gather()
			s.of(okay, 0).Of = 3
			s.receipts = append(s.receipts[:1], s.receipts[2:]...)
			s.appKilled()
		}, nil},
		{"the app was killed over a batch that it failed, and the message is gone", func(s *story) {
			s.spoiled(okay)
			s.receipts = s.receipts[2 : len(s.receipts)-1] // its attempt
		}, []string{"I2"}},
		{"counted", func(s *story) {
			s.spoiled(okay)
			s.of(okay, 0).Count, s.of(okay, 0).Attempt = 1, 2
		}, []string{"I5", "I7", "I18"}},
		{"counted although only an app can have failed it", func(s *story) {
			s.spoiled(okay)
			s.of(okay, 0).Count, s.of(okay, 0).Attempt = 1, 2
			s.appKilled()
		}, nil},
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
		{"tried before and not alone", func(s *story) {
			s.gather()
			s.of(failed, 2).Of = 2
		}, []string{"I18"}},
		{"delivered before and not alone", func(s *story) {
			s.gather()
			s.of(okay, 0).Of, s.of(okay, 0).Again = 2, true
		}, []string{"I18"}},
		{"delivered before and alone", func(s *story) {
			s.gather()
			s.of(okay, 0).Of, s.of(okay, 0).Again = 1, true
		}, nil},
		{"acked because of a batch that failed", func(s *story) {
			s.spoiled(okay)
			s.receipts = s.receipts[2:]
		}, []string{"I2"}},
		{"parked by the failures of batches", func(s *story) {
			s.gather()
			s.drop(given, true, false)
			for n := range retries + 1 {
				s.receive(given, 3*time.Second+time.Duration(n)*delay, 0, 500)
				begun := &s.receipts[len(s.receipts)-2]
				begun.Of, begun.Whole = 2, true
			}
		}, []string{"I5", "I7", "I18"}},
		{"as many requests at once as allowed, of several messages", func(s *story) {
			s.gather()
			s.run.Concurrency = 1
			for n := range 2 {
				s.of(slow+3+n, 0).At, s.of(slow+3+n, 0).Of = s.of(slow+3, 0).At, 2
			}
		}, nil},
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
