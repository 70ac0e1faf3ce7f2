package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/sim/model"
)

// tally adds up what the runs have seen: a simulation in which nothing happens proves nothing.
type tally struct {
	mu                                                  sync.Mutex
	runs, calm, messages, receipts, parked, twice, fifo int
	gathered                                            int // runs with batches
	struck                                              map[trouble]int
	presets                                             map[string]int
}

func (y *tally) add(j *judgement) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.struck == nil {
		y.struck, y.presets = map[trouble]int{}, map[string]int{}
	}
	y.runs++
	y.messages += len(j.s.messages)
	y.parked += len(j.parked)
	y.twice += j.twice
	y.presets[fmt.Sprintf("%s/quorum=%t/%s", j.s.preset, j.s.plan.Quorum, j.s.version)]++
	for _, r := range j.receipts {
		y.receipts += len(r)
	}
	if len(j.struck) == 0 {
		y.calm++
	}
	if j.s.gather > 1 {
		y.gathered++
	}
	if j.s.prefetch == 1 && len(j.struck) == 0 {
		y.fifo++
	}
	for _, f := range j.struck {
		y.struck[f.what]++
	}
}

func (y *tally) String() string {
	var struck []string
	for _, what := range slices.Sorted(maps.Keys(y.struck)) {
		struck = append(struck, fmt.Sprintf("%s %d", what, y.struck[what]))
	}
	return fmt.Sprintf("%d runs (%d without a fault, %d with batches), %d messages, %d attempts, %d parked, %d accepted twice after a fault; %d topologies on their versions; faults: %s",
		y.runs, y.calm, y.gathered, y.messages, y.receipts, y.parked, y.twice, len(y.presets), strings.Join(struck, ", "))
}

// complete fails the test when something a seed can draw never happened in so many runs.
func (y *tally) complete(t *testing.T) {
	t.Helper()
	for _, what := range troubles {
		if y.struck[what] == 0 {
			t.Errorf("no %s in %d runs", what, y.runs)
		}
	}
	// Fanout is there twice with classic queues, and native, which is the last two, on one version.
	kinds := (len(presets)-3)*len(model.Versions) + 1
	if y.calm == 0 || y.gathered == 0 || y.fifo == 0 || y.twice == 0 || y.parked == 0 || len(y.presets) < kinds {
		t.Errorf("too little happened: %s", y)
	}
}
