package app

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	type files map[string]string
	for name, c := range map[string]struct {
		own   string
		files files
		want  int64
	}{
		"no cgroup":                    {"", nil, 0},
		"version 2":                    {"0::/", files{"memory.max": "134217728\n"}, 134217728},
		"version 2 without a limit":    {"0::/", files{"memory.max": "max\n"}, 0},
		"version 2 below the root":     {"0::/a/b", files{"memory.max": "max", "a/memory.max": "2000", "a/b/memory.max": "3000"}, 2000},
		"version 1":                    {"4:memory:/", files{"memory/memory.limit_in_bytes": "268435456\n"}, 268435456},
		"version 1 without a limit":    {"4:memory:/", files{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"version 1 below the root":     {"3:cpu:/x\n4:hugetlb,memory:/a", files{"memory/a/memory.limit_in_bytes": "5000"}, 5000},
		"a path of the host":           {"0::/kubepods/pod1", files{"memory.max": "7000"}, 7000},
		"nonsense":                     {"lots\n0::/", files{"memory.max": "lots\n"}, 0},
		"the list is not there at all": {"-", files{"memory.max": "9000"}, 9000},
	} {
		dir := t.TempDir()
		own := filepath.Join(dir, "own")
		if c.own != "-" {
			write(t, own, c.own)
		}
		for f, text := range c.files {
			write(t, filepath.Join(dir, "fs", f), text)
		}
		if c.want == 0 {
			c.want = math.MaxInt64
		}
		if got := cgroupLimit(filepath.Join(dir, "fs"), own); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLimitMemory(t *testing.T) { //nolint:paralleltest // sets the process's memory limit
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitMemory(0, 600)
	if got := debug.SetMemoryLimit(-1); got != 640 {
		t.Errorf("a budget of 600 without a limit became %d, want four fifths of four thirds", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	limitMemory(1000, 600)
	if got := debug.SetMemoryLimit(-1); got != 800 {
		t.Errorf("a limit of 1000 became %d, want four fifths", got)
	}
	limitMemory(5000, 600) // as GOMEMLIMIT would have set it
	if got := debug.SetMemoryLimit(-1); got != 800 {
		t.Errorf("a limit that was set became %d", got)
	}
}

// TestMemoryIsFreedEveryQuietMinute: probes and scrapes need memory too, long after the last message. A collection that
// begins by itself takes the place of a forced one, so there must be none.
func TestMemoryIsFreedEveryQuietMinute(t *testing.T) { //nolint:paralleltest // counts the collections of the process
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	synctest.Test(t, func(t *testing.T) {
		before := forced()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- (&App{}).freeMemory(ctx) }()
		for range 3 {
			time.Sleep(quietInterval)
			synctest.Wait()
			after := forced()
			if after < before+2 {
				t.Errorf("%d collections after a quiet interval, want 2", after-before)
			}
			before = after
			time.Sleep(time.Minute - quietInterval)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestLimits: rates and slots are those of the configuration; the slots that all subscriptions share exist once.
func TestLimits(t *testing.T) {
	t.Parallel()
	first := load(t, "SIDECAR_MAX_CONCURRENCY=19", "SIDECAR_RATE_LIMIT=100/s")
	second := load(t, "SIDECAR_SERVICE=demo-refunds")
	a := fresh(t, together(first, second))
	own, other := a.subscriptions[0].limits.rates, a.subscriptions[1].limits.rates
	if len(own) != 1 || own[0].Limit() != 100 || own[0].Burst() != 10 || len(other) != 0 {
		t.Errorf("limiters of the first %v, of the second %v", own, other)
	}
	if s := a.subscriptions[1].limits.slots; len(s) != 1 || cap(s[0]) != 19 || s[0] != a.limits.slots[0] {
		t.Errorf("slots %v of %v", s, a.limits.slots)
	}
}

// TestEachHasASlot: one subscription cannot take all slots.
func TestEachHasASlot(t *testing.T) {
	t.Parallel()
	c := load(t, "SIDECAR_MAX_CONCURRENCY=4", "SIDECAR_CONCURRENCY=3")
	l := newLimits(together(c, c, c)).of(c)
	if len(l.slots) != 2 || cap(l.slots[0]) != 2 || cap(l.slots[1]) != 4 {
		t.Errorf("slots %v", l.slots)
	}
}

const dayLong = "SIDECAR_APP_TIMEOUT=24h"

// TestLongAttempts are the settings that may have attempts that are longer than the broker waits by itself.
func TestLongAttempts(t *testing.T) {
	t.Parallel()
	classic, quorum := planFile(t, load(t), nil), planFile(t, load(t, "SIDECAR_QUEUE_TYPE=quorum"), nil)
	for _, more := range []string{"SIDECAR_TOPOLOGY=native", "SIDECAR_QUEUE_TYPE=quorum", quorum} {
		accepted(t, dayLong, "SIDECAR_RETRY_AFTER_MAX=24m", more)
	}
	accepted(t, "SIDECAR_SUBSCRIPTIONS=a,b", "SIDECAR_SUB_A_TOPOLOGY=native", "SIDECAR_SUB_A_APP_TIMEOUT=24h")
	refused(t, "not be more than 20m", "SIDECAR_SUB_B_APP_TIMEOUT", "SIDECAR_SUBSCRIPTIONS=a,b", "SIDECAR_SUB_A_TOPOLOGY=native", "SIDECAR_SUB_B_APP_TIMEOUT=24h")
	refused(t, "not be more than 20m", "SIDECAR_APP_TIMEOUT", dayLong, "SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b") // its type is decided by what exists
	refused(t, "the plan's queue is not a quorum queue", "SIDECAR_APP_TIMEOUT", dayLong, classic)
	refused(t, "without SIDECAR_ORDER_BY", "SIDECAR_APP_TIMEOUT", dayLong, quorum, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")
}

// TestLongAttemptsOfABroker: with attempts of a day messages are consumed from RabbitMQ 4.3 only, and from a quorum queue
// only: its consumer asks for the time. Where the sidecar consumes nothing, check says the same.
func TestLongAttemptsOfABroker(t *testing.T) {
	t.Parallel()
	recent := !strings.HasPrefix(brokertest.Version(t), "3.") && !strings.HasPrefix(brokertest.Version(t), "4.0.")
	for _, c := range []struct {
		name, mode string
		given      amqp.Table // of a queue that exists
		from43     string     // what RabbitMQ 4.3 makes of it: the argument of the problem; empty: it is consumed
	}{
		{name: "declared", mode: "declare"},
		{name: "unseen", mode: "none", given: amqp.Table{"x-queue-type": "quorum"}},
		{name: "classic", mode: "declare", given: amqp.Table{}, from43: "x-queue-type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := live(t, dayLong, "SIDECAR_SERVICE=demo-"+c.name, "SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_TOPOLOGY_MODE="+c.mode,
				"SIDECAR_CONCURRENCY=1", "SIDECAR_PREFETCH=19")
			queue := must.Get(newPlan(cfg))(t).Queue
			if c.given != nil {
				brokertest.Queue(t, brokertest.URL(t), queue, c.given)
			}
			a, _, _ := run(t, cfg)
			sub := a.subscriptions[0]
			if recent && c.from43 == "" {
				consumesFor(t, queue, 20*(24*time.Hour+5*time.Minute))
				return
			}
			problem, says := "version", topology.FixAttempt+" at most 25m, or upgrade every node"
			if recent {
				problem, says = "drift", topology.FixAttempt+" at most 25m, or use a queue beside it: another SIDECAR_QUEUE"
			}
			brokertest.Eventually(t, time.Minute, "a finding", sub.status.bad)
			findings, _ := sub.status.last()
			r, _ := checked(t, cfg)
			if f := findings[0]; string(f.Problem) != problem || !strings.Contains(f.Fix, says) || sub.consumer.Active() {
				t.Errorf("consuming: %v, found: %v", sub.consumer.Active(), f)
			}
			if len(r.Findings) == 0 || r.Fits || r.Findings[0].Problem != problem {
				t.Errorf("check found %v", r.Findings)
			}
		})
	}
}

// consumesFor waits for the consumer of a queue, which has to ask for that much time.
func consumesFor(t *testing.T, queue string, want time.Duration) {
	t.Helper()
	brokertest.Eventually(t, time.Minute, "a consumer that asks for "+want.String(), func() bool {
		for _, row := range brokertest.Rows(t, "consumers", "queue_name", "arguments") {
			args, _ := row["arguments"].(map[string]any)
			if ms, _ := args["x-consumer-timeout"].(float64); row["queue_name"] == queue && int64(ms) == want.Milliseconds() {
				return true
			}
		}
		return false
	})
}
