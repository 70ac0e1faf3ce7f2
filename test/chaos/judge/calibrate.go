package judge

import (
	"slices"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Before and after the faults, when nothing else is to do, there are a group of slow messages and one of prompt ones.
// What can be said of them depends on the sidecar, and hardly on how busy the machine is.

// group is one of them.
type group []*message

// groups finds those of a kind: messages that follow each other.
func (j *judge) groups(kind plan.Kind) []group {
	var all []group
	inside := false
	for i := range j.messages {
		m := &j.messages[i]
		is := m.pub != nil && m.plan.Kind == kind && len(m.Receipts) > 0
		switch {
		case is && inside:
			all[len(all)-1] = append(all[len(all)-1], m)
		case is:
			all = append(all, group{m})
		}
		inside = is
	}
	return all
}

// keepsUp is a part of I9: a slow app is served as fast after the faults as before, more or less. And of I10: never
// more requests at once than allowed.
func (j *judge) keepsUp() {
	for _, g := range j.groups(plan.Slow) {
		from, to := g[0].Receipts[0].At, int64(0)
		var begun []int64
		for _, m := range g {
			from, to = min(from, m.Receipts[0].At), max(to, m.Receipts[len(m.Receipts)-1].Done)
			begun = append(begun, m.Receipts[0].At)
		}
		j.v.Rates = append(j.v.Rates, float64(len(g))/max(time.Duration(to-from).Seconds(), 1e-9))
		slices.Sort(begun)
		begun = slices.Compact(begun)                     // the messages of one request arrive at one time
		for i := j.run.Concurrency; i < len(begun); i++ { // each is surely under way while the app works
			if begun[i]-begun[i-j.run.Concurrency] < int64(plan.SlowAnswer) {
				j.violated("I10", "more than %d requests were under way", j.run.Concurrency)
			}
		}
	}
	switch r := j.v.Rates; {
	case len(r) < 2:
		j.violated("I9", "it was not measured how fast a slow app is served before and after the faults")
	case r[len(r)-1] < r[0]/2:
		j.violated("I9", "a slow app answered %.0f messages per second before the faults and %.0f after", r[0], r[len(r)-1])
	}
}

// promptly is how much later than its delay a retry may come when nothing else is to do: half of them, since the
// machine may be busy with others.
const promptly = time.Second

// inTime is the other half of I5's delays.
func (j *judge) inTime() {
	all := j.groups(plan.Prompt)
	if len(all) < 2 {
		j.violated("I5", "it was not measured how soon retries come before and after the faults")
	}
	for _, g := range all {
		var late []time.Duration
		for _, m := range g {
			if len(m.Receipts) > 1 {
				late = append(late, time.Duration(m.Receipts[1].At-m.Receipts[0].Done)-j.run.RetryDelay)
			}
		}
		slices.Sort(late)
		if l := quantile(late, 0.5); l > promptly {
			j.violated("I5", "retries came %s later than their delay", l)
		}
	}
}

// counts is a part of I11: until the faults begin the metrics say exactly what the app's ledger says.
func (j *judge) counts() error {
	if j.stormAt == 0 {
		j.violated("I11", "it is not recorded when the faults began")
		return nil
	}
	got, err := j.read(ledger.WarmUpMetrics)
	if err != nil || got == nil {
		return err
	}
	if j.run.Replicas > 1 { // they are those of one
		return nil
	}
	want := map[string]float64{"ack": 0, "requeue": 0, "retry": 0, "park": 0}
	for i := range j.messages {
		m := &j.messages[i]
		failed := 0
		for _, r := range m.Receipts {
			switch {
			case r.At > j.stormAt, whole(&r):
			case success(r.Status):
				want["ack"]++
			case r.Status == 425:
				want["requeue"]++
			default:
				failed++
			}
		}
		if failed > j.run.MaxRetries {
			want["park"]++
			failed--
		}
		want["retry"] += float64(failed)
	}
	for outcome, n := range want {
		if m := got["sidecar_messages_settled_total "+outcome]; m != n {
			j.violated("I11", "until the faults began %v deliveries were counted as %s, and the app counted %v", m, outcome, n)
		}
	}
	return nil
}
