package sim

import (
	"flag"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("sim.seeds", 1000, "how many seeds to run")
	first = flag.Uint64("sim.seed", 1, "the first seed; with -sim.seeds=1 its log is printed")
)

// maxFailures ends a run that fails: more of them tell nothing new.
const maxFailures = 5

// TestSeeds runs the sidecar with one seed after the other and judges each run.
func TestSeeds(t *testing.T) {
	var next, failed atomic.Int64
	start := time.Now()
	t.Run("all", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(*seeds) && failed.Load() < maxFailures; i = next.Add(1) - 1 {
					seed := *first + uint64(i)
					if lines := verdict(t, seed, bug{}, logger(t)); len(lines) > 0 {
						failed.Add(1)
						t.Errorf("seed %d: %s\n  %s\nreplay: go test ./internal/sim -run TestSeeds -count=1 -v -sim.seeds=1 -sim.seed=%d",
							seed, draw(seed), strings.Join(lines, "\n  "), seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds in %v", min(int(next.Load()), *seeds), time.Since(start).Round(time.Millisecond))
}

// logger prints what happens when only one seed is looked at.
func logger(t *testing.T) *slog.Logger {
	if *seeds != 1 {
		return silent
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// verdict runs a seed in a bubble of virtual time. A goroutine that is left behind fails the test.
func verdict(t *testing.T, seed uint64, b bug, log *slog.Logger) (lines []string) {
	s := draw(seed)
	synctest.Test(t, func(*testing.T) {
		lines = run(s, b, log).judge(s)
	})
	return lines
}
