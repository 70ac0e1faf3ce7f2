package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// story is a small run in which everything went well: an ok message, one that failed twice, one that was parked, one
// that came again after a cut, and one that was moved back once.
type story struct {
	run       ledger.Run
	published []ledger.Published
	requests  []ledger.Requested
	rows      []ledger.Written
	table     []ledger.Stored
	receipts  []ledger.Receipt
	parked    []ledger.Parked
	residual  []ledger.Parked
	redriven  []ledger.Redriven
	faults    []ledger.Fault
	probes    []ledger.Probe
	exits     []ledger.Exit
	resources []ledger.Resources
	metrics   string
	warmUp    string // metrics of it
	storm     int64  // when it ended
	log       string
}

// at is a time of the run.
func at(d time.Duration) int64 { return int64(d) + int64(time.Hour) }

const (
	okay = iota
	failed
	given
	again
	moved
	slow              // and the next three
	prompt = slow + 5 // and one in between that is none
	count  = prompt + 3
)

const retries, delay = 2, 300 * time.Millisecond

func history() *story {
	s := &story{
		run: ledger.Run{ID: "r", Messages: count, Concurrency: 2, Prefetch: 4, MaxRetries: retries, RetryDelay: delay,
			RequeueDelay: delay, AppTimeout: time.Second, Queue: "q", Secrets: []string{"canary"}},
		faults:    []ledger.Fault{{ID: 1, Kind: "half-open", Class: ClassSidecar, Start: at(60 * time.Second), End: at(60 * time.Second), Recovered: at(61 * time.Second)}},
		probes:    []ledger.Probe{{Name: "ready", OK: true}},
		exits:     []ledger.Exit{{Wanted: true, Asked: "terminated", AskedAt: at(time.Minute), At: at(time.Minute)}, {Code: -1, Signal: "killed", Wanted: true, Asked: "killed"}},
		resources: []ledger.Resources{{Label: "before", Goroutines: 40, RSS: 16 << 20}, {Label: "after", Goroutines: 41, RSS: 17 << 20}},
		metrics:   "sidecar_messages_received_total{queue=\"q\"} 9\nsidecar_messages_settled_total{queue=\"q\"} 8\nsidecar_stale_deliveries_total 1\n",
		warmUp:    "sidecar_messages_settled_total{outcome=\"ack\",reason=\"a\"} 0\n",
		storm:     at(time.Millisecond),
		log:       "nothing to see\n",
	}
	for seq, p := range []plan.Plan{{Kind: plan.OK}, {Kind: plan.Fail, K: 2, Status: 503}, {Kind: plan.Never, Status: 500}, {Kind: plan.OK}, {Kind: plan.Never, Status: 500},
		{Kind: plan.Slow}, {Kind: plan.Slow}, {Kind: plan.OK}, {Kind: plan.Slow}, {Kind: plan.Slow},
		{Kind: plan.Prompt}, {Kind: plan.OK}, {Kind: plan.Prompt}} {
		id := plan.ID("r", seq)
		s.published = append(s.published, ledger.Published{Seq: seq, ID: id, Sum: "sum", Plan: p.String(), Sent: at(time.Duration(seq) * time.Second),
			Done: at(time.Duration(seq)*time.Second + 1), Result: ledger.Confirmed})
	}
	s.published[again].Sent = at(59 * time.Second)
	s.published[again].Done = at(59*time.Second + 1)
	s.receive(okay, time.Second, 0, 200)
	for n, status := range []int{503, 503, 200} {
		s.receive(failed, 2*time.Second+time.Duration(n)*delay, n, status)
	}
	for n := range retries + 1 {
		s.receive(given, 3*time.Second+time.Duration(n)*delay, n, 500)
		s.receive(moved, 5*time.Second+time.Duration(n)*delay, n, 500)
	}
	s.redriven = append(s.redriven, ledger.Redriven{Seq: moved, ID: plan.ID("r", moved), At: at(7 * time.Second), Result: ledger.Confirmed})
	s.receive(moved, 8*time.Second, retries, 500)
	s.receive(again, 60*time.Second, 0, 200)
	s.receive(again, 61*time.Second, 0, 200)
	for n := range 5 { // two before, one that is not slow, two after
		s.receive(slow+n, 20*time.Second+time.Duration(n)*100*time.Millisecond, 0, 200)
	}
	for n, statuses := range [][]int{{503, 200}, {200}, {503, 200}} {
		for i, status := range statuses {
			s.receive(prompt+n, 30*time.Second+time.Duration(n)*time.Second+time.Duration(i)*(delay+10*time.Millisecond), i, status)
		}
	}
	s.park(given)
	s.park(moved)
	s.others()
	return s
}

func (s *story) receive(seq int, when time.Duration, retryCount, status int) {
	key := fmt.Sprint(len(s.receipts))
	id := plan.ID("r", seq)
	s.receipts = append(s.receipts,
		ledger.Receipt{Key: key, Seq: seq, ID: id, Sum: "sum", Attempt: retryCount + 1, Count: retryCount, Mark: plan.Mark(id), At: at(when)},
		ledger.Receipt{Key: key, Seq: seq, Status: status, Begun: at(when), At: at(when + time.Millisecond)})
}

func (s *story) park(seq int) {
	s.parked = append(s.parked, ledger.Parked{Seq: seq, ID: plan.ID("r", seq), Sum: "sum", At: at(100 * time.Second), Persistent: true,
		Headers: map[string]string{plan.HeaderMark: plan.Mark(plan.ID("r", seq)), "x-original-queue": "q", "x-final-retry-count": "2", "x-final-reason": "max_retries", "x-final-status-code": "500"},
		Types:   map[string]string{"x-final-retry-count": "int32", "x-final-status-code": "int32"}})
}

// drop takes away what is known of a message.
func (s *story) drop(seq int, receipts, parked bool) {
	if receipts {
		s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Seq == seq })
	}
	if parked {
		s.parked = slices.DeleteFunc(s.parked, func(p ledger.Parked) bool { return p.Seq == seq })
	}
}

// of returns the n-th line about a message in the app's ledger; two lines are one receipt.
func (s *story) of(seq, n int) *ledger.Receipt {
	for i := range s.receipts {
		if s.receipts[i].Seq == seq {
			if n == 0 {
				return &s.receipts[i]
			}
			n--
		}
	}
	panic("no such receipt")
}

func (s *story) fault(kind, class string, from, to time.Duration) {
	s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: kind, Class: class, Start: at(from), End: at(to), Recovered: at(to + 1)})
}

// notYet lets the app answer the first attempt of a message with 425.
func (s *story) notYet(seq int) {
	s.published[seq].Plan = plan.Plan{Kind: plan.Early, K: 1}.String()
	s.of(seq, 1).Status = 425
}

// away lets the app be away while messages wait, each with as many attempts that it never saw.
func (s *story) away(attempts int) {
	s.run.Concurrency, s.run.MaxRetries = 2, 10
	s.drop(given, true, true)
	s.drop(moved, true, true)
	s.redriven = nil
	for _, seq := range []int{given, moved} {
		s.published[seq].Plan = plan.Plan{Kind: plan.OK}.String()
	}
	for _, seq := range []int{okay, given, moved} {
		s.drop(seq, true, false)
		s.published[seq].Sent, s.published[seq].Done = at(30*time.Second), at(30*time.Second+1)
		s.receive(seq, 33*time.Second, attempts, 200)
	}
	s.fault("app-closed", ClassApp, 29*time.Second, 32*time.Second)
}

func write[T any](t *testing.T, dir, name string, records []T) {
	t.Helper()
	w := must.Get(ledger.Append(dir, name))(t)
	for _, r := range records {
		must.Do(t, w.Write(r))
	}
	must.Do(t, w.Close())
}

func (s *story) judged(t *testing.T) *Verdict {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, ledger.WriteJSON(dir, ledger.RunFile, s.run))
	write(t, dir, ledger.PublishFile, s.published)
	write(t, dir, ledger.RequestFile, s.requests)
	write(t, dir, ledger.RowFile, s.rows)
	write(t, dir, ledger.TableFile, s.table)
	write(t, dir, ledger.AppFile, s.receipts)
	write(t, dir, ledger.ParkedFile, s.parked)
	write(t, dir, ledger.ResidualFile, s.residual)
	write(t, dir, ledger.RedriveFile, s.redriven)
	write(t, dir, ledger.FaultFile, s.faults)
	write(t, dir, ledger.PhaseFile, []ledger.Phase{{Name: "warm-up"}, {Name: ledger.Storm, At: s.storm}})
	write(t, dir, ledger.ProbeFile, s.probes)
	write(t, dir, ledger.ExitFile, s.exits)
	write(t, dir, ledger.ResourceFile, s.resources)
	for name, text := range map[string]string{ledger.MetricsFile: s.metrics, ledger.WarmUpMetrics: s.warmUp, ledger.SidecarFile: s.log} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return must.Get(Judge(dir))(t)
}

// chapter is a change to the story and the invariants that it breaks.
type chapter struct {
	name   string
	change func(*story)
	want   []string
}

func judges(t *testing.T, chapters []chapter) {
	for _, c := range chapters {
		t.Run(c.name, func(t *testing.T) {
			s := history()
			c.change(s)
			v := s.judged(t)
			if got := v.Broken(); !slices.Equal(got, c.want) {
				t.Errorf("broken %v, want %v\n%s", got, c.want, v.Markdown())
			}
		})
	}
}
