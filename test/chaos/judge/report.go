package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sidecar/test/chaos/plan"
)

// Markdown is the verdict on one page.
func (v *Verdict) Markdown() string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	r := &v.Run
	word := "nothing lost"
	if v.Lost > 0 {
		word = fmt.Sprintf("%d lost by killed brokers, as classic queues can", v.Lost)
	}
	if !v.OK() {
		word = "INVARIANTS BROKEN: " + strings.Join(v.Broken(), ", ")
	}
	say("# Chaos: %s\n", word)
	say("RabbitMQ %s, %s queues, concurrency %d, prefetch %d, seed %d, commit %s, binary sha256 %.16s…\n",
		r.BrokerVersion, r.QueueType, r.Concurrency, r.Prefetch, r.Seed, r.Commit, r.Binary)
	say("| confirmed | unknown | receipts | parked | lost | explained duplicates |\n|---|---|---|---|---|---|")
	lost := fmt.Sprint(v.Lost)
	if v.MayLose {
		lost += " (measured: classic queues, broker killed)"
	}
	var dups []string
	for _, class := range slices.Sorted(maps.Keys(v.Duplicates)) {
		dups = append(dups, fmt.Sprintf("%s %d", class, v.Duplicates[class]))
	}
	say("| %d | %d | %d | %d | %s | %s |\n", v.Confirmed, v.Unknown, v.Receipts, v.Parked, lost, strings.Join(dups, ", "))
	if r.Topology != "" {
		say("Topology %s, %d retries after %s, replicas %d. Attempts given back: %d of %d messages, at most %d "+
			"of one. Parked by the broker's delivery limit: %d.\n",
			r.Topology, r.MaxRetries, r.RetryDelay, r.Replicas, v.GivenBack.Attempts, v.GivenBack.Messages, v.GivenBack.Most,
			v.Limited)
	}
	v.sources(say)
	say("| invariant | holds | |\n|---|---|---|")
	for _, i := range v.Invariants {
		holds := "yes"
		if i.Idle {
			holds = "–"
		}
		if i.Violations > 0 {
			holds = fmt.Sprintf("**no, %d times**", i.Violations)
		}
		say("| %s | %s | %s |", i.ID, holds, i.Statement)
	}
	for _, i := range v.Invariants {
		for _, e := range i.Examples {
			say("\n- %s: %s", i.ID, e)
		}
	}
	say("\n| fault | times | failed to happen | until messages arrive again, p50 | max |\n|---|---|---|---|---|")
	for _, f := range v.Faults {
		say("| %s | %d | %d | %s | %s |", f.Kind, f.Count, f.Failed, short(f.P50), short(f.Max))
	}
	say("\nFrom confirm to first receipt: p50 %s, p99 %s. From a failed answer to the next receipt: p50 %s, p99 %s "+
		"(delay %s).",
		short(v.DelayP50), short(v.DelayP99), short(v.RetryP50), short(v.RetryP99), r.RetryDelay)
	if len(v.Rates) > 1 {
		say("\nAn app that takes %s answered %.0f messages per second before the faults and %.0f after.", plan.SlowAnswer,
			v.Rates[0], v.Rates[len(v.Rates)-1])
	}
	for _, m := range v.Resources {
		say("\nThe sidecar %s: %d goroutines, %d descriptors, %.1f MiB resident, %d connections to the app.", m.Label,
			m.Goroutines, m.Descriptors,
			float64(m.RSS)/(1<<20), m.AppConns)
	}
	say("\nschedule sha256 %.16s…, replay: `%s`", r.Schedule, r.Replay)
	return b.String()
}

// sources is about those beside the publisher at the broker.
func (v *Verdict) sources(say func(string, ...any)) {
	for _, s := range v.Sources {
		what := fmt.Sprintf("POSTed to the sidecar: %d messages; %d answered with 2xx, %d refused with 4xx, as they should "+
			"be; %d unknown, %d nacked", s.Messages, s.Confirmed, s.Refused, s.Unknown, s.Nacked)
		if s.Source == plan.Outbox.String() {
			what = fmt.Sprintf("Written into the outbox: %d rows; %d committed (%d of them after one with a higher id, %d "+
				"that no broker can take), %d rolled back, %d by a commit without an answer",
				s.Messages, s.Confirmed, s.Overtaken, s.Quarantined, s.RolledBack, s.Unknown)
		}
		say("%s. Until its first receipt a message took: p50 %s, p99 %s.\n", what, short(s.DelayP50), short(s.DelayP99))
	}
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
