package sim

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/sim/model"
	"sidecar/internal/testkit/judge"
)

// TestJudgeSeesWhatIsWrong falsifies the ledger of a run in which all was right, in one place each time.
func TestJudgeSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		invariant string
		falsify   func(l *ledger, accepted, parked string)
	}{
		"thrown away":          {"I1", func(l *ledger, id, _ string) { l.dropped = []model.Dropped{{MessageID: id}} }},
		"of no publisher":      {"I3", func(l *ledger, _, _ string) { l.odd("I3 message %q is of no publisher", "x") }},
		"parked, and not sent": {"I3", func(l *ledger, _, _ string) { l.parked = append(l.parked, model.Message{}) }},
		"wrong count":          {"I4", func(l *ledger, _, id string) { parcelOf(l, id).Headers["x-final-retry-count"] = int32(99) }},
		"wrong queue":          {"I4", func(l *ledger, _, id string) { parcelOf(l, id).Headers["x-original-queue"] = "other" }},
		"expires":              {"I4", func(l *ledger, _, id string) { parcelOf(l, id).Expiration = "1000" }},
		"not persistent":       {"I4", func(l *ledger, _, id string) { parcelOf(l, id).DeliveryMode = 1 }},
		"an attempt too many":  {"I5", func(l *ledger, id, _ string) { again(l, id) }},
		"parked twice":         {"I5", func(l *ledger, _, id string) { l.parked = append(l.parked, *parcelOf(l, id)) }},
		"parked though it succeeds": {"I7", func(l *ledger, id, parked string) {
			m := *parcelOf(l, parked)
			m.MessageID = id
			l.parked = append(l.parked, m)
		}},
		"POSTed from a dead session": {"I6", func(l *ledger, id, _ string) { lastOf(l, id).stale = true }},
		"not at rest":                {"I9", func(l *ledger, _, _ string) { l.idle = false }},
		"never sent":                 {"I9", func(l *ledger, id, _ string) { delete(l.sent, id) }},
		"a delivery left unsettled":  {"I11", func(l *ledger, _, _ string) { l.books[0].received++ }},
		"an ack too many":            {"I11", func(l *ledger, _, _ string) { l.books[0].received++; l.books[0].settled["ack"]++ }},
		"twice, and no fault then": {"I6", func(l *ledger, id, _ string) {
			l.struck = []*fault{{what: cut, at: l.began.Add(-time.Hour)}}
			again(l, id)
		}},
		"twice, more than a fault explains": {"I6", func(l *ledger, id, _ string) {
			l.struck = []*fault{{what: cut, at: lastOf(l, id).done}}
			for range 40 {
				again(l, id)
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calm(t, func(s *settings) bool { return s.prefetch > 1 })
				l := run(s, bug{}, silent)
				test.falsify(l, ended(t, s, judge.Accepted), ended(t, s, judge.Failed))
				wants(t, l.judge(s).lines, test.invariant)
			})
		})
	}
	t.Run("out of order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := calm(t, func(s *settings) bool { return s.prefetch == 1 && len(s.messages) > 1 })
			l := run(s, bug{}, silent)
			first, second := l.order[0], l.order[1]
			l.receipts[first], l.receipts[second] = l.receipts[second], l.receipts[first]
			wants(t, l.judge(s).lines, "I8")
		})
	})
}

// calm finds settings without faults.
func calm(t *testing.T, suits func(*settings) bool) *settings {
	for seed := uint64(1); seed < 1000; seed++ {
		s := draw(seed)
		if len(s.faults) > 0 || !suits(s) {
			continue
		}
		if s.prefetch == 1 || find(s, judge.Accepted) != nil && find(s, judge.Failed) != nil {
			return s
		}
	}
	t.Fatal("no seed suits")
	return nil
}

// find is a message with a plain way to its end: by statuses alone.
func find(s *settings, end judge.Kind) *parcel {
	for _, p := range s.messages {
		f := p.fate(s.plan.MaxRetries)
		if f.end == end && f.last.status >= 200 && f.last.disposition == 0 && (end == judge.Accepted) == (f.attempts == 1) {
			return p
		}
	}
	return nil
}

func ended(t *testing.T, s *settings, end judge.Kind) string {
	p := find(s, end)
	if p == nil {
		t.Fatalf("seed %d has no message that ends as %d", s.seed, end)
	}
	return p.id
}

func lastOf(l *ledger, id string) *receipt { return l.receipts[id][len(l.receipts[id])-1] }

// again is one more receipt like the last one, a moment later.
func again(l *ledger, id string) {
	r := *lastOf(l, id)
	r.at = r.done.Add(time.Millisecond)
	r.done = r.at.Add(time.Millisecond)
	l.receipts[id] = append(l.receipts[id], &r)
}

func parcelOf(l *ledger, id string) *model.Message {
	return &l.parked[slices.IndexFunc(l.parked, func(m model.Message) bool { return m.MessageID == id })]
}

func wants(t *testing.T, lines []string, invariant string) {
	t.Helper()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, invariant+" ") }) {
		t.Errorf("want a breach of %s, got %q", invariant, lines)
	}
}
