package judge

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// TestJudge has the same history with one thing wrong each time.
func TestJudge(t *testing.T) {
	t.Parallel()
	judges(t, []chapter{
		{"nothing wrong", func(*story) {}, nil},
		{"received and gone", func(s *story) { s.drop(given, false, true) }, []string{"I2"}},
		{"an answer that is not recorded cannot have been 2xx", func(s *story) {
			s.published[okay].Plan = plan.Plan{Kind: plan.Timeout}.String()
			s.receipts = slices.DeleteFunc(s.receipts, func(r ledger.Receipt) bool { return r.Seq == okay && r.Status != 0 })
		}, []string{"I2"}},
		{"still in a queue", func(s *story) { s.residual = append(s.residual, ledger.Parked{Seq: okay, ID: "r-0"}) }, []string{"I1"}},
		{"a stranger", func(s *story) { s.receipts[0].ID = "x-0" }, []string{"I1", "I3"}},
		{"another body", func(s *story) { s.of(okay, 0).Sum = "other" }, []string{"I3"}},
		{"another header", func(s *story) { s.of(okay, 0).Mark = "other" }, []string{"I3"}},
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
		}, []string{"I5", "I7"}},
		{"one attempt too many", func(s *story) { s.receive(given, 3*time.Second+4*delay, 2, 500) }, []string{"I5", "I6"}},
		{"too early", func(s *story) { s.of(failed, 2).At -= int64(delay) / 2; s.of(failed, 3).At -= int64(delay) / 2 }, []string{"I5"}},
		{"425, too early", func(s *story) {
			s.notYet(okay)
			s.receive(okay, time.Second+delay/2, 0, 200)
		}, []string{"I5"}},
		{"a duplicate after a stop", func(s *story) {
			s.receive(okay, 2*time.Second, 0, 200)
			s.fault(SidecarEnded, ClassNone, time.Second, time.Second+1)
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
		{"the speed was not measured", func(s *story) {
			for n := range 5 {
				s.published[slow+n].Plan = plan.Plan{Kind: plan.OK}.String()
			}
		}, []string{"I9"}},
		{"a duplicate out of nothing", func(s *story) { s.receive(okay, 2*time.Second, 0, 200) }, []string{"I5", "I6"}},
		{"parked twice out of nothing", func(s *story) { s.park(given) }, []string{"I6"}},
		{"a duplicate without its fault", func(s *story) { s.faults = nil }, []string{"I5", "I6"}},
		{"a duplicate after a cut", func(s *story) { s.faults[0].Kind = "cut" }, []string{"I6"}},
		{"too many duplicates for one fault", func(s *story) {
			for range 2*s.run.Prefetch + 1 {
				s.receive(again, 61*time.Second, 0, 200)
			}
		}, []string{"I6"}},
		{"as many, which two faults share", func(s *story) {
			s.fault(AppStopped, ClassApp, 55*time.Second, 61*time.Second)
			for range 2*s.run.Prefetch + 1 {
				s.receive(again, 61*time.Second, 0, 200)
			}
		}, nil},
		{"parked without having failed", func(s *story) { s.park(okay) }, []string{"I4", "I7"}},
		{"counted without an attempt", func(s *story) { s.of(okay, 0).Count, s.of(okay, 0).Attempt = 3, 4 }, []string{"I5", "I7"}},
		{"one counted attempt that the app never saw, because it was away", func(s *story) { s.away(1) }, nil},
		{"too many of them", func(s *story) { s.away(2) }, []string{"I7"}},
		{"out of order", func(s *story) {
			s.run.Concurrency, s.run.Prefetch, s.faults = 1, 1, nil
			s.drop(again, true, false)
			s.receive(again, time.Second/2, 0, 200)
		}, []string{"I8"}},
		{"nothing after a fault", func(s *story) { s.faults[0].Recovered = 0 }, []string{"I9"}},
		{"late after a cut", func(s *story) {
			s.run.Replicas, s.faults[0].Kind, s.faults[0].Recovered = 2, "cut", at(80*time.Second)
		}, []string{"I9"}},
		{"a probe", func(s *story) { s.probes[0].OK = false }, []string{"I9"}},
		{"ended by itself", func(s *story) { s.exits[0] = ledger.Exit{Code: 2} }, []string{"I9"}},
		{"stopped badly", func(s *story) { s.exits[0].Code = 1 }, []string{"I9"}},
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
		{"the delay was not measured", func(s *story) {
			for _, n := range []int{prompt, prompt + 2} {
				s.published[n].Plan = plan.Plan{Kind: plan.Fail, K: 1, Status: 503}.String()
			}
		}, []string{"I5"}},
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
		{"a secret in the log", func(s *story) { s.log += "the canary is logged\n" }, []string{"I15"}},
	})
}

// TestJudgeMeasures: on classic queues the loss of a killed broker is reported, and no more than reported: of what was on its
// way through the retry queue, and of nothing else.
func TestJudgeMeasures(t *testing.T) {
	t.Parallel()
	kill := ledger.Fault{ID: 2, Kind: brokerKilled, Class: ClassBroker, Start: at(2*time.Second + delay), End: at(3 * time.Second), Recovered: at(4 * time.Second)}
	for _, c := range []chapter{
		{"in transit", func(*story) {}, nil},
		{"long before", func(s *story) { s.faults[1].Start, s.faults[1].End = at(30*time.Second), at(31*time.Second) }, []string{"I2"}},
		{"an orderly stop", func(s *story) { s.faults[1].Kind = "broker-stop" }, []string{"I2"}},
		{"never received", func(s *story) { s.drop(failed, true, false) }, []string{"I1"}},
		{"given back", func(s *story) { s.of(failed, 1).Status = 425 }, []string{"I2"}},
		{"quorum", func(s *story) { s.run.MayLose = false }, []string{"I2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := history()
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
	t.Parallel()
	if _, err := Judge(t.TempDir()); err == nil {
		t.Error("a verdict about nothing")
	}
	dir := t.TempDir()
	must.Do(t, ledger.WriteJSON(dir, ledger.RunFile, history().run))
	must.Do(t, os.WriteFile(filepath.Join(dir, ledger.PublishFile), []byte("{broken\n{\n"), 0o600))
	if _, err := Judge(dir); err == nil {
		t.Error("a verdict from a broken ledger")
	}
}
