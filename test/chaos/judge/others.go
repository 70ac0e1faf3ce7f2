package judge

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// Bounds of recovery, from the end of a fault to the next receipt.
const (
	recoverCut = 15 * time.Second
	recoverAny = 35 * time.Second
)

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
		case e.Signal == "" && e.Code != 0:
			j.violated("I9", "the sidecar was told to stop and exited with %d", e.Code)
		}
	}
	byKind := map[string][]time.Duration{}
	failed := map[string]int{}
	for i := range j.faults {
		f := &j.faults[i]
		if f.Error != "" {
			failed[f.Kind]++
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

// keepsUp is the last part of I9: a slow app is served as fast after the faults as before, more or less. Slow messages
// come in groups, before the faults and after.
func (j *judge) keepsUp() {
	var from, to int64
	var begun []int64
	n := 0
	end := func() {
		if n > 1 && to > from {
			j.v.Rates = append(j.v.Rates, float64(n)/time.Duration(to-from).Seconds())
		}
		n = 0
	}
	for i := range j.messages {
		m := &j.messages[i]
		if m.pub == nil || m.plan.Kind != plan.Slow || len(m.receipts) == 0 {
			end()
			continue
		}
		if first := m.receipts[0].at; n == 0 || first < from {
			from = first
		}
		to = max(to, m.receipts[len(m.receipts)-1].answered)
		begun = append(begun, m.receipts[0].at)
		n++
	}
	end()
	slices.Sort(begun)
	for i := j.run.Concurrency; i < len(begun); i++ { // each is surely under way for as long as the app takes
		if begun[i]-begun[i-j.run.Concurrency] < int64(plan.SlowAnswer) {
			j.violated("I10", "more than %d requests were under way", j.run.Concurrency)
		}
	}
	switch r := j.v.Rates; {
	case len(r) < 2:
		j.violated("I9", "nobody measured how fast a slow app is served before and after the faults")
	case r[len(r)-1] < r[0]/2:
		j.violated("I9", "a slow app answered %.0f messages per second before the faults and %.0f after", r[0], r[len(r)-1])
	}
}

// Slack of I10 beside its 5 %: what a garbage collector, a resolver or a keep-alive may hold.
const (
	slackCount = 8
	slackBytes = 8 << 20
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
	more("descriptors", int64(before.Descriptors), int64(after.Descriptors), slackCount)
	more("bytes of resident memory", before.RSS, after.RSS, slackBytes)
	more("connections to the app", int64(before.AppConns), int64(after.AppConns), slackCount)
}

var sample = regexp.MustCompile(`(?m)^(sidecar_\w+)(\{[^}]*\})? ([0-9.e+]+)$`)

// metrics is I11, of the sidecar that was there in the end and had settled everything.
func (j *judge) metrics() error {
	text, err := os.ReadFile(filepath.Join(j.dir, ledger.MetricsFile))
	if errors.Is(err, os.ErrNotExist) {
		j.violated("I11", "the metrics were not read")
		return nil
	}
	if err != nil {
		return err
	}
	sums := map[string]float64{}
	for _, s := range sample.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(s[3]), 64)
		if err != nil {
			return err
		}
		sums[string(s[1])] += n
	}
	received := sums["sidecar_messages_received_total"]
	settled := sums["sidecar_messages_settled_total"] + sums["sidecar_stale_deliveries_total"]
	if received != settled || sums["sidecar_inflight_messages"] != 0 || sums["sidecar_delayed_messages"] != 0 {
		j.violated("I11", "received %v, settled %v, in flight %v, delayed %v", received, settled,
			sums["sidecar_inflight_messages"], sums["sidecar_delayed_messages"])
	}
	return nil
}

// secrets is I15.
func (j *judge) secrets() error {
	for _, file := range []string{ledger.SidecarFile, ledger.MetricsFile, ledger.ParkedFile} {
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

// figures are what the report tells beside the verdict.
func (j *judge) figures() {
	var delays, retries []time.Duration
	for i := range j.messages {
		m := &j.messages[i]
		if m.pub == nil || len(m.receipts) == 0 {
			continue
		}
		delays = append(delays, time.Duration(max(0, m.receipts[0].at-m.pub.Done)))
		for k := 1; k < len(m.receipts); k++ {
			if before := &m.receipts[k-1]; before.status >= 400 && before.status != 425 {
				retries = append(retries, time.Duration(max(0, m.receipts[k].at-before.answered)))
			}
		}
	}
	slices.SortFunc(delays, cmp.Compare)
	slices.SortFunc(retries, cmp.Compare)
	j.v.DelayP50, j.v.DelayP99 = quantile(delays, 0.5), quantile(delays, 0.99)
	j.v.RetryP50, j.v.RetryP99 = quantile(retries, 0.5), quantile(retries, 0.99)
}

// quantile of sorted values; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
