package judge

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// story is a small run in which everything went well: an ok message, one that failed twice, one that was parked, one that
// came again after a cut, and one that was moved back once.
type story struct {
	run       ledger.Run
	published []ledger.Published
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

func tell() *story {
	s := &story{
		run: ledger.Run{ID: "r", Messages: count, Concurrency: 2, Prefetch: 4, MaxRetries: retries, RetryDelay: delay,
			RequeueDelay: delay, AppTimeout: time.Second, Queue: "q", Secrets: []string{"canary"}},
		faults:    []ledger.Fault{{ID: 1, Kind: "cut", Class: ClassSidecar, Start: at(60 * time.Second), End: at(60 * time.Second), Recovered: at(61 * time.Second)}},
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
	return s
}

func (s *story) receive(seq int, when time.Duration, retryCount, status int) {
	key := string(rune('a' + len(s.receipts)))
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
	s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: "app-closed", Class: ClassApp, Start: at(29 * time.Second), End: at(32 * time.Second), Recovered: at(33 * time.Second)})
}

func write[T any](t *testing.T, dir, name string, records []T) {
	t.Helper()
	w, err := ledger.Append(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func (s *story) judged(t *testing.T) *Verdict {
	t.Helper()
	dir := t.TempDir()
	if err := ledger.WriteJSON(dir, ledger.RunFile, s.run); err != nil {
		t.Fatal(err)
	}
	write(t, dir, ledger.PublishFile, s.published)
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v, err := Judge(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestJudge tells the same story with one thing wrong each time.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*story)
		want   []string
	}{
		{"nothing wrong", func(*story) {}, nil},
		{"never received, never parked", func(s *story) { s.drop(okay, true, false) }, []string{"I1"}},
		{"received, never answered with 2xx", func(s *story) { s.of(okay, 1).Status = 500 }, []string{"I2"}},
		{"received and gone", func(s *story) { s.drop(given, false, true) }, []string{"I2"}},
		{"an answer that nobody wrote down cannot have been 2xx", func(s *story) {
			s.published[okay].Plan = plan.Plan{Kind: plan.Timeout}.String()
			s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Seq == okay && r.Status != 0 })
		}, []string{"I2"}},
		{"an answer that nobody wrote down may have been 2xx", func(s *story) {
			s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Seq == okay && r.Status != 0 })
		}, nil},
		{"unknown and never seen", func(s *story) { s.published[okay].Result = ledger.Unknown; s.drop(okay, true, false) }, nil},
		{"still in a queue", func(s *story) { s.residual = append(s.residual, ledger.Parked{Seq: okay, ID: "r-0"}) }, []string{"I1"}},
		{"a stranger", func(s *story) { s.receipts[0].ID = "x-0" }, []string{"I1", "I3"}},
		{"another body", func(s *story) { s.of(okay, 0).Sum = "other" }, []string{"I3"}},
		{"another header", func(s *story) { s.of(okay, 0).Mark = "other" }, []string{"I3"}},
		{"a header of its own", func(s *story) { s.of(okay, 0).Odd = "X-Injected" }, []string{"I3"}},
		{"parked with another body", func(s *story) { s.parked[0].Sum = "other" }, []string{"I3"}},
		{"parked with another property", func(s *story) { s.parked[0].Changed = true }, []string{"I3"}},
		{"parked without its headers", func(s *story) { delete(s.parked[0].Headers, plan.HeaderMark) }, []string{"I3"}},
		{"parked without the count", func(s *story) { delete(s.parked[0].Headers, "x-final-retry-count") }, []string{"I4"}},
		{"parked with a count as text", func(s *story) { s.parked[0].Types["x-final-retry-count"] = "string" }, []string{"I4"}},
		{"parked with a status the app never gave", func(s *story) { s.parked[0].Headers["x-final-status-code"] = "503" }, []string{"I4"}},
		{"parked with status and error", func(s *story) { s.parked[0].Headers["x-final-error"] = "reset" }, []string{"I4"}},
		{"parked, not persistent", func(s *story) { s.parked[0].Persistent = false }, []string{"I4"}},
		{"one attempt too few", func(s *story) {
			s.of(given, 4).Count, s.of(given, 4).Attempt = 1, 2
			key := s.of(given, 2).Key
			s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Key == key })
		}, []string{"I5"}},
		{"one attempt too many", func(s *story) { s.receive(given, 3*time.Second+4*delay, 2, 500) }, []string{"I5", "I6"}},
		{"too early", func(s *story) { s.of(failed, 2).At -= int64(delay) / 2; s.of(failed, 3).At -= int64(delay) / 2 }, []string{"I5"}},
		{"an answer written down late", func(s *story) { s.of(failed, 1).At += int64(delay) / 2 }, nil},
		{"425, too early", func(s *story) {
			s.published[okay].Plan = plan.Plan{Kind: plan.Early, K: 1}.String()
			s.of(okay, 1).Status = 425
			s.receive(okay, time.Second+delay/2, 0, 200)
		}, []string{"I5"}},
		{"425, too early because of a stop", func(s *story) {
			s.published[okay].Plan = plan.Plan{Kind: plan.Early, K: 1}.String()
			s.of(okay, 1).Status = 425
			s.receive(okay, time.Second+delay/2, 0, 200)
			s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: SidecarEnded, Class: ClassNone, Start: at(time.Second), End: at(time.Second + 1), Recovered: at(2 * time.Second)})
		}, nil},
		{"a duplicate after a stop", func(s *story) {
			s.receive(okay, 2*time.Second, 0, 200)
			s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: SidecarEnded, Class: ClassNone, Start: at(time.Second), End: at(time.Second + 1), Recovered: at(2 * time.Second)})
		}, []string{"I5", "I6"}},
		{"waited for far too long", func(s *story) {
			s.published[okay].Plan = plan.Plan{Kind: plan.Timeout}.String()
			s.of(okay, 1).Status, s.of(okay, 1).At = ledger.Hung, at(20*time.Second)
			s.receive(okay, 21*time.Second, 1, 200)
		}, []string{"I9"}},
		{"slower afterwards", func(s *story) {
			s.of(slow+4, 0).At += int64(time.Second)
			s.of(slow+4, 1).At += int64(time.Second)
		}, []string{"I9"}},
		{"more at once than allowed", func(s *story) {
			s.run.Concurrency = 1
			s.of(slow+4, 0).At = s.of(slow+3, 0).At + int64(50*time.Millisecond)
		}, []string{"I10"}},
		{"nobody looked how fast", func(s *story) {
			for n := range 5 {
				s.published[slow+n].Plan = plan.Plan{Kind: plan.OK}.String()
			}
		}, []string{"I9"}},
		{"a duplicate out of nothing", func(s *story) { s.receive(okay, 2*time.Second, 0, 200) }, []string{"I5", "I6"}},
		{"parked twice out of nothing", func(s *story) { s.park(given) }, []string{"I6"}},
		{"a duplicate without its fault", func(s *story) { s.faults = nil }, []string{"I5", "I6"}},
		{"a copy that a killed broker left, long after", func(s *story) {
			s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: "broker-kill", Class: ClassBroker, Start: at(2 * time.Second), End: at(3 * time.Second), Recovered: at(4 * time.Second)})
			s.receive(okay, 50*time.Second, 0, 200)
		}, nil},
		{"answered when nobody waited any more", func(s *story) {
			s.faults = append(s.faults, ledger.Fault{ID: 2, Kind: AppStopped, Class: ClassApp, Start: at(time.Second / 2), End: at(time.Second), Recovered: at(time.Second + 1)})
			s.receive(okay, 10*time.Second, 1, 200)
		}, nil},
		{"too many duplicates for one fault", func(s *story) {
			for range 2*s.run.Prefetch + 1 {
				s.receive(again, 61*time.Second, 0, 200)
			}
		}, []string{"I6"}},
		{"parked without having failed", func(s *story) { s.park(okay) }, []string{"I4", "I7"}},
		{"counted without an attempt", func(s *story) { s.of(okay, 0).Count, s.of(okay, 0).Attempt = 3, 4 }, []string{"I5", "I7"}},
		{"one counted attempt that the app never saw, because it was away", func(s *story) {
			s.away(1)
		}, nil},
		{"too many of them", func(s *story) {
			s.away(2)
		}, []string{"I7"}},
		{"out of order", func(s *story) {
			s.run.Concurrency, s.run.Prefetch, s.faults = 1, 1, nil
			s.drop(again, true, false)
			s.receive(again, time.Second/2, 0, 200)
		}, []string{"I8"}},
		{"nothing after a fault", func(s *story) { s.faults[0].Recovered = 0 }, []string{"I9"}},
		{"late after a cut", func(s *story) { s.faults[0].Recovered = at(80 * time.Second) }, []string{"I9"}},
		{"a probe", func(s *story) { s.probes[0].OK = false }, []string{"I9"}},
		{"ended by itself", func(s *story) { s.exits[0] = ledger.Exit{Code: 2} }, []string{"I9"}},
		{"stopped badly", func(s *story) { s.exits[0].Code = 1 }, []string{"I9"}},
		{"stopped in a hurry", func(s *story) { s.exits[0].Code, s.exits[0].Twice = 1, true }, nil},
		{"had to be killed", func(s *story) { s.exits[0].Code, s.exits[0].Signal = -1, "killed" }, []string{"I9"}},
		{"ended before it could listen", func(s *story) {
			s.exits[0].Code, s.exits[0].Signal, s.exits[0].Started = -1, "terminated", s.exits[0].AskedAt-int64(10*time.Millisecond)
		}, nil},
		{"ended without listening", func(s *story) { s.exits[0].Code, s.exits[0].Signal = -1, "terminated" }, []string{"I9"}},
		{"took too long to stop", func(s *story) { s.exits[0].At += int64(time.Minute) }, []string{"I9"}},
		{"a fault that did not happen", func(s *story) { s.faults[0].Error = "no such process" }, []string{"I9"}},
		{"retries that come late", func(s *story) {
			s.of(prompt, 2).At += int64(5 * time.Second)
			s.of(prompt, 3).At += int64(5 * time.Second)
		}, []string{"I5"}},
		{"nobody looked how soon", func(s *story) {
			for _, n := range []int{prompt, prompt + 2} {
				s.published[n].Plan = plan.Plan{Kind: plan.Fail, K: 1, Status: 503}.String()
			}
		}, []string{"I5"}},
		{"counted rightly", func(s *story) {
			s.storm = at(2*time.Second + delay/2)
			s.warmUp = "sidecar_messages_settled_total{outcome=\"ack\",reason=\"a\"} 1\nsidecar_messages_settled_total{outcome=\"retry\",reason=\"a\"} 1\n" +
				"sidecar_messages_settled_total{outcome=\"retry\",reason=\"b\"} 0\n"
		}, nil},
		{"counted as something else", func(s *story) {
			s.storm = at(2*time.Second + delay/2)
			s.warmUp = "sidecar_messages_settled_total{outcome=\"ack\",reason=\"a\"} 2\n"
		}, []string{"I11"}},
		{"not counted at all", func(s *story) { s.storm, s.warmUp = at(2*time.Second+delay/2), "" }, []string{"I11"}},
		{"no beginning of the faults", func(s *story) { s.storm = 0 }, []string{"I11"}},
		{"goroutines", func(s *story) { s.resources[1].Goroutines = 80 }, []string{"I10"}},
		{"memory", func(s *story) { s.resources[1].RSS = 64 << 20 }, []string{"I10"}},
		{"not measured", func(s *story) { s.resources = nil }, []string{"I10"}},
		{"metrics that do not add up", func(s *story) { s.metrics += "sidecar_messages_received_total{x=\"y\"} 1\n" }, []string{"I11"}},
		{"in flight for ever", func(s *story) { s.metrics += "sidecar_inflight_messages 1\n" }, []string{"I11"}},
		{"count restarted after a move", func(s *story) { s.of(moved, 6).Count, s.of(moved, 6).Attempt = 0, 1 }, []string{"I5", "I14"}},
		{"a secret in the log", func(s *story) { s.log += "the canary sings\n" }, []string{"I15"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			c.change(s)
			v := s.judged(t)
			if got := v.Broken(); !slices.Equal(got, c.want) {
				t.Errorf("broken %v, want %v\n%s", got, c.want, v.Markdown())
			}
		})
	}
}

// TestJudgeMeasures: on classic queues the loss of a killed broker is told, and no more than told: of what was on its way
// through the retry queue, and of nothing else.
func TestJudgeMeasures(t *testing.T) {
	kill := ledger.Fault{ID: 2, Kind: brokerKilled, Class: ClassBroker, Start: at(2*time.Second + delay), End: at(3 * time.Second), Recovered: at(4 * time.Second)}
	for _, c := range []struct {
		name   string
		change func(*story)
		want   []string
	}{
		{"in transit", func(*story) {}, nil},
		{"long before", func(s *story) { s.faults[1].Start, s.faults[1].End = at(30*time.Second), at(31*time.Second) }, []string{"I2"}},
		{"an orderly stop", func(s *story) { s.faults[1].Kind = "broker-stop" }, []string{"I2"}},
		{"never received", func(s *story) { s.drop(failed, true, false) }, []string{"I1"}},
		{"given back", func(s *story) { s.of(failed, 1).Status = 425 }, []string{"I2"}},
		{"quorum", func(s *story) { s.run.MayLose = false }, []string{"I2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell()
			s.run.MayLose = true
			s.faults = append(s.faults, kill)
			for range 2 { // of its attempts only the first is known
				key := s.of(failed, 2).Key
				s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Key == key })
			}
			c.change(s)
			v := s.judged(t)
			if got := v.Broken(); v.Lost != 1 || !slices.Equal(got, c.want) {
				t.Errorf("lost %d, broken %v, want %v\n%s", v.Lost, got, c.want, v.Markdown())
			}
		})
	}
}

// TestJudgeWithoutLedgers: a run that cannot be read is no verdict.
func TestJudgeWithoutLedgers(t *testing.T) {
	if _, err := Judge(t.TempDir()); err == nil {
		t.Error("a verdict about nothing")
	}
	dir := t.TempDir()
	if err := ledger.WriteJSON(dir, ledger.RunFile, tell().run); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.PublishFile), []byte("{broken\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Judge(dir); err == nil {
		t.Error("a verdict from a broken ledger")
	}
}
