package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/sim/model"
)

var (
	seeds = flag.Int("sim.seeds", 200, "how many seeds to run")
	first = flag.Uint64("sim.seed", 0, "the first seed, 0 draws one; with -sim.seeds=1 its log is printed")
	all   = flag.Bool("sim.all", false, "all deliberate bugs and all steps, not the part that -sim.seed draws")
)

const (
	rotation       = 10000 // the first seed is drawn from so many
	mutantsPerRun  = 4
	stepsPerRun    = 4    // one of so many steps
	scenesPerRun   = 9    // one of so many variants of a scene
	maxFailures    = 5    // end a run that fails: more of them show nothing new
	representative = 1000 // seeds are enough for everything to have happened
)

// TestMain draws the first seed, which chooses what this run tests, and prints it.
func TestMain(m *testing.M) {
	flag.Parse()
	if *first == 0 {
		*first = 1 + rand.Uint64N(rotation)
	}
	fmt.Printf("replay: go test ./internal/sim -sim.seed=%d -sim.seeds=%d -sim.all=%t\n", *first, *seeds, *all)
	os.Exit(m.Run())
}

// TestSeeds runs the sidecar with one seed after the other and judges each run.
func TestSeeds(t *testing.T) {
	t.Parallel()
	start := time.Now()
	sum := &tally{}
	sweep(t, *first, *seeds, func(t *testing.T, seed uint64) bool {
		j := judged(t, seed, bug{}, logger())
		sum.add(j)
		if len(j.lines) > 0 {
			t.Error(report(j))
		}
		return len(j.lines) > 0
	})
	t.Logf("%v: %s", time.Since(start).Round(time.Millisecond), sum)
	if *seeds >= representative {
		sum.complete(t)
	}
}

// sweep tries one seed after the other on every core, until enough of them have failed.
func sweep(t *testing.T, from uint64, n int, fails func(*testing.T, uint64) bool) {
	var next, failed atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(n) && failed.Load() < maxFailures; i = next.Add(1) - 1 {
					if fails(t, from+uint64(i)) {
						failed.Add(1)
					}
				}
			})
		}
	})
}

func report(j *judgement) string {
	lines := append([]string{fmt.Sprintf("seed %d: %s", j.s.seed, j.s)}, j.lines...)
	for _, f := range j.struck {
		lines = append(lines, fmt.Sprintf("fault after %v: %s", f.at.Sub(j.began).Round(time.Millisecond), f))
	}
	lines = append(lines, fmt.Sprintf("replay: make sim SEED=%d", j.s.seed))
	return strings.Join(lines, "\n  ")
}

// logger prints what happens when only one seed is checked.
func logger() *slog.Logger {
	if *seeds != 1 {
		return silent
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// judged runs a seed in a bubble of virtual time and judges it. A goroutine that is left behind fails the test.
func judged(t *testing.T, seed uint64, b bug, log *slog.Logger) (j *judgement) {
	s := draw(seed)
	synctest.Test(t, func(*testing.T) { j = run(s, b, log).judge(s) })
	return j
}

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
