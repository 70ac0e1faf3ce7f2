package judge

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	kit "sidecar/internal/testkit/judge"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Bounds of recovery, from the end of a fault to the next receipt.
const (
	recoverCut = 15 * time.Second
	recoverAny = 35 * time.Second
)

// overGrace is how much longer than its grace the sidecar may take to end, with a broker that does not answer.
const overGrace = 8 * time.Second

// starting is how long a process may take until it listens to signals; one that comes earlier simply ends it.
const starting = 2 * time.Second

// goesOn is I9.
func (j *judge) goesOn() {
	for _, p := range j.probes {
		if !p.OK {
			j.violated("I9", "%s: %s", p.Name, p.Text)
		}
	}
	for _, e := range j.exits {
		switch {
		case !e.Wanted:
			j.violated("I9", "the sidecar ended by itself: exit %d %s", e.Code, e.Signal)
		case e.Asked != syscall.SIGTERM.String():
		case e.Signal == e.Asked && time.Duration(e.AskedAt-e.Started) < starting:
		case e.Signal != "":
			j.violated("I9", "the sidecar was asked to stop and had to be killed")
		case e.Code != 0 && !e.Twice:
			j.violated("I9", "the sidecar was asked to stop and exited with %d", e.Code)
		case time.Duration(e.At-e.AskedAt) > j.run.Grace+overGrace:
			j.violated("I9", "the sidecar took %s to stop", time.Duration(e.At-e.AskedAt))
		}
	}
	byKind := map[string][]time.Duration{}
	failed := map[string]int{}
	for i := range j.faults {
		f := &j.faults[i]
		if f.Error != "" {
			failed[f.Kind]++
			j.violated("I9", "fault %d (%s) could not be made to happen: %s", f.ID, f.Kind, f.Error)
			byKind[f.Kind] = append(byKind[f.Kind], 0)
			continue
		}
		if f.Recovered == 0 {
			j.violated("I9", "nothing was received any more after fault %d (%s)", f.ID, f.Kind)
			continue
		}
		took := time.Duration(max(0, f.Recovered-f.End))
		byKind[f.Kind] = append(byKind[f.Kind], took)
		if took > recoverAny || f.Kind == "cut" && took > recoverCut {
			j.violated("I9", "fault %d (%s) took %s to get over", f.ID, f.Kind, took)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		all := byKind[kind]
		slices.Sort(all)
		j.v.Faults = append(j.v.Faults, Recovery{kind, len(all), failed[kind], quantile(all, 0.5), all[len(all)-1]})
	}
}

// Slack of I10 beside its 5 %: what a garbage collector, a resolver or a keep-alive may hold.
const (
	slackCount = 4
	slackBytes = 4 << 20
)

// holds is I10.
func (j *judge) holds() {
	var before, after *ledger.Resources
	for i := range j.resources {
		switch r := &j.resources[i]; r.Label {
		case "before":
			before = r
		case "after":
			after = r
		}
	}
	if before == nil || after == nil {
		j.violated("I10", "the resources were not measured")
		return
	}
	more := func(what string, x, y, slack int64) {
		if y > x+x/20+slack {
			j.violated("I10", "%s: %d before, %d after", what, x, y)
		}
	}
	more("goroutines", int64(before.Goroutines), int64(after.Goroutines), slackCount)
	if j.run.Replicas < 2 { // the app counts the connections of all
		more("descriptors beside connections to the app", int64(before.Descriptors-before.AppConns),
			int64(after.Descriptors-after.AppConns), slackCount)
	}
	more("bytes of resident memory", before.RSS, after.RSS, slackBytes)
	// Idle ones are given up one after the other: how many are left depends on when one looks.
	more("connections to the app", int64(before.AppConns), int64(after.AppConns), int64(j.run.Concurrency))
}

// secrets is I15.
func (j *judge) secrets() error {
	for _, file := range []string{
		ledger.SidecarFile, ledger.SecondFile, ledger.RelayFile, ledger.MetricsFile, ledger.ParkedFile,
	} {
		text, err := os.ReadFile(filepath.Join(j.dir, file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, secret := range j.run.Secrets {
			if n := bytes.Count(text, []byte(secret)); n > 0 {
				j.violated("I15", "%s holds a secret %d times", file, n)
			}
		}
	}
	return nil
}

// figures are in the report beside the verdict.
func (j *judge) figures() {
	var delays, retries []time.Duration
	for i := range j.messages {
		m := &j.messages[i]
		if m.pub == nil || len(m.Receipts) == 0 {
			continue
		}
		if m.source != plan.AMQP {
			continue // see figuresOf
		}
		delays = append(delays, time.Duration(max(0, m.Receipts[0].At-m.pub.Done)))
		for k := 1; k < len(m.Receipts); k++ {
			if before := &m.Receipts[k-1]; before.Kind == kit.Failed && before.Status >= 400 && before.Status != 425 {
				retries = append(retries, time.Duration(max(0, m.Receipts[k].At-before.Done)))
			}
		}
	}
	slices.SortFunc(delays, cmp.Compare)
	slices.SortFunc(retries, cmp.Compare)
	j.v.DelayP50, j.v.DelayP99 = quantile(delays, 0.5), quantile(delays, 0.99)
	j.v.RetryP50, j.v.RetryP99 = quantile(retries, 0.5), quantile(retries, 0.99)
	for s := plan.HTTP; s < plan.Sources; s++ {
		if f := j.figuresOf(s); f.Messages > 0 {
			j.v.Sources = append(j.v.Sources, f)
		}
	}
}

// quantile of sorted values; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
