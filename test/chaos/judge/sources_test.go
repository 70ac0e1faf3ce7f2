package judge

import (
	"slices"
	"testing"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// The history of the other sources: a message that was POSTed and one that was refused, and rows.
const (
	posted = iota
	wrong
	requests
)

const (
	passed = iota // written before the next one
	late          // and committed after it
	undone        // rolled back
	unsure        // committed without an answer
	vanish        // rolled back without an answer
	poison        // no broker can take it
	keyed         // and the next one has the same key
	rowed  = keyed + 2
)

func (s *story) others() {
	s.run.HTTP, s.run.Outbox, s.run.Batch, s.run.Relays = requests, rowed, 1, 1
	for n := range requests {
		seq := plan.HTTP.Seq(n)
		s.requests = append(s.requests, ledger.Requested{Status: 204, Tries: 1, Published: ledger.Published{
			Seq: seq, ID: plan.ID("r", seq), Sum: "sum", Plan: "ok:0:0", Sent: at(40 * time.Second), Done: at(41 * time.Second), Result: ledger.Confirmed,
		}})
	}
	s.requests[wrong].Result, s.requests[wrong].Status, s.requests[wrong].Want = ledger.Refused, 404, 404
	s.receive(plan.HTTP.Seq(posted), 42*time.Second, 0, 200)
	for n := range rowed {
		seq := plan.Outbox.Seq(n)
		when := 44*time.Second + time.Duration(n)*100*time.Millisecond
		s.rows = append(s.rows, ledger.Written{Row: int64(n + 1), Tx: n, Published: ledger.Published{
			Seq: seq, ID: plan.ID("r", seq), Sum: "sum", Plan: "ok:0:0", Sent: at(when), Done: at(when + 10*time.Millisecond), Result: ledger.Confirmed,
		}})
		s.table = append(s.table, ledger.Stored{Row: int64(n + 1), ID: plan.ID("r", seq), SentAt: at(when + 30*time.Millisecond)})
	}
	s.rows[passed].Done = s.rows[late].Done + 1
	s.rows[undone].Result, s.rows[vanish].Result, s.rows[unsure].Result = ledger.RolledBack, ledger.Unknown, ledger.Unknown
	s.rows[poison].Poison, s.rows[keyed].Key, s.rows[keyed+1].Key = true, "k", "k"
	s.table[poison] = ledger.Stored{Row: poison + 1, ID: s.table[poison].ID, Attempts: 3, Error: "unroutable", Quarantined: true}
	for _, n := range []int{passed, late, unsure, keyed, keyed + 1} {
		s.receive(plan.Outbox.Seq(n), 46*time.Second, 0, 200)
	}
	s.take(undone)
	s.take(vanish)
}

// unanswered makes the POST one of which it is unknown whether the broker took it.
func (s *story) unanswered(status int) {
	s.requests[posted].Result, s.requests[posted].Status = ledger.Unknown, status
}

// take removes a row from the table.
func (s *story) take(n int) {
	s.table = slices.DeleteFunc(s.table, func(r ledger.Stored) bool { return r.Row == int64(n+1) })
}

// row of the table.
func (s *story) row(n int) *ledger.Stored {
	i := slices.IndexFunc(s.table, func(r ledger.Stored) bool { return r.Row == int64(n+1) })
	return &s.table[i]
}

// TestJudgeOfOtherSources has the same history with one thing wrong each time, of what was POSTed and of the outbox.
func TestJudgeOfOtherSources(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"no answer for no reason", func(s *story) { s.unanswered(504) }, []string{"I12"}},
		{"no answer long after the broker was suspended", func(s *story) {
			s.unanswered(504)
			s.fault("broker-freeze", ClassSidecar, 20*time.Second, 30*time.Second)
		}, []string{"I12"}},
		{"no answer, and only an operator was there", func(s *story) {
			s.unanswered(504)
			s.fault("redrive", ClassNone, 40*time.Second, 41*time.Second)
		}, []string{"I12"}},
		{"refused and there", func(s *story) { s.receive(plan.HTTP.Seq(wrong), 42*time.Second, 0, 200) }, []string{"I12"}},
		{"without an answer, and where it cannot be", func(s *story) {
			s.requests[wrong].Result, s.requests[wrong].Status = ledger.Unknown, 504
			s.receive(plan.HTTP.Seq(wrong), 42*time.Second, 0, 200)
		}, []string{"I12"}},
		{"refused and parked", func(s *story) { s.park(plan.HTTP.Seq(wrong)) }, []string{"I4", "I7", "I12"}},
		{"refused for another reason", func(s *story) { s.requests[wrong].Status = 400 }, []string{"I12"}},
		{"POSTed once, there twice", func(s *story) { s.receive(plan.HTTP.Seq(posted), 43*time.Second, 0, 200) }, []string{"I5", "I6"}},
		{"never POSTed", func(s *story) { s.requests = s.requests[:posted] }, []string{"I3"}},
		{"a number that no message had", func(s *story) { s.run.HTTP = 0; s.requests = nil }, []string{"I3"}},

		{"sent and never marked", func(s *story) { s.row(late).SentAt = 0 }, []string{"I13"}},
		{"gone from the table", func(s *story) { s.take(late) }, []string{"I13"}},
		{"rolled back and sent", func(s *story) { s.receive(plan.Outbox.Seq(undone), 46*time.Second, 0, 200) }, []string{"I13"}},
		{"rolled back and there", func(s *story) {
			s.table = append(s.table, ledger.Stored{Row: undone + 1, ID: plan.ID("r", plan.Outbox.Seq(undone))})
		}, []string{"I13"}},
		{"no answer to a commit that did not happen, and sent", func(s *story) { s.receive(plan.Outbox.Seq(vanish), 46*time.Second, 0, 200) }, []string{"I13"}},
		{"no answer to a commit that happened, and not sent", func(s *story) { s.drop(plan.Outbox.Seq(unsure), true, false) }, []string{"I1", "I13"}},
		{"the table was not checked", func(s *story) { s.table = nil }, []string{"I13"}},
		{"a row that was never inserted", func(s *story) { s.rows = s.rows[:keyed+1]; s.drop(plan.Outbox.Seq(keyed+1), true, false) }, []string{"I13"}},
		{"quarantined for nothing", func(s *story) { s.row(passed).Quarantined, s.row(passed).Error = true, "why" }, []string{"I13"}},
		{"charged with an attempt for nothing", func(s *story) { s.row(passed).Attempts = 1 }, []string{"I13"}},
		{"poison that was sent", func(s *story) { s.receive(plan.Outbox.Seq(poison), 46*time.Second, 0, 200) }, []string{"I13"}},
		{"poison that is marked as sent", func(s *story) { s.row(poison).SentAt = at(time.Minute) }, []string{"I13"}},
		{"poison that is tried for ever", func(s *story) { s.row(poison).Quarantined = false }, []string{"I13"}},
		{"poison without a reason", func(s *story) { s.row(poison).Error = "" }, []string{"I13"}},
		{"one key, in another order", func(s *story) { s.row(keyed + 1).SentAt = s.row(keyed).SentAt - int64(time.Second) }, []string{"I13"}},
		{"sent twice, and its database broke when it was marked long since", func(s *story) {
			s.fault("postgres-kill", ClassData, 45*time.Second, 46*time.Second)
			s.receive(plan.Outbox.Seq(late), 46*time.Second+time.Millisecond, 0, 200)
		}, []string{"I5", "I6"}},
		{"more of them than were claimed", func(s *story) {
			s.fault("postgres-kill", ClassData, 44*time.Second, 45*time.Second)
			s.row(late).SentAt = at(46 * time.Second)
			for n := range 3 {
				s.receive(plan.Outbox.Seq(late), 80*time.Second+time.Duration(n), 0, 200)
			}
		}, []string{"I6"}},
		{"a database explains nothing of what was POSTed", func(s *story) {
			s.fault("postgres-kill", ClassData, 40*time.Second, 50*time.Second)
			s.receive(plan.HTTP.Seq(posted), 43*time.Second, 0, 200)
		}, []string{"I5", "I6"}},
	})
}
