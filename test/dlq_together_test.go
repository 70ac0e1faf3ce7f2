package test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/brokertest"
)

// refused reports whether a command found the queue in use, and says so.
func (r result) refused() bool {
	return r.code == 1 && strings.Contains(r.stderr, "is in use: another operation runs on ")
}

// TestDLQReadsTogether: of several that read at the same time each sees all of the queue or is refused, never a part of
// it, and all messages keep their places.
func TestDLQReadsTogether(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 300)
			sc.parkIDs(503, ids...)
			var work sync.WaitGroup
			for range 4 {
				work.Go(func() {
					for range 4 {
						r := command(t, sc.env, "dlq", "redrive", "--all", "--dry-run", "--json", "-q")
						if r.refused() {
							continue
						}
						var d done
						if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != 0 || d.Total != len(ids) || d.Scanned != len(ids) {
							t.Errorf("exit %d: %s", r.code, r.all())
						}
					}
				})
			}
			work.Wait()
			if got := sc.listedIDs(); !slices.Equal(got, ids) {
				t.Errorf("%d messages, or another order: %.100q", len(got), got)
			}
		})
	}
}

// TestDLQRedrivesTogether: four that redrive at the same time, again and again until nothing is left. No client has been
// killed, so every message comes once.
func TestDLQRedrivesTogether(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType, "CONCURRENCY", "30", "LOG_LEVEL", "info")
			s := sc.run()
			ids := numbered("m", 400)
			sc.parkIDs(503, ids...)
			var work sync.WaitGroup
			var mu sync.Mutex
			moved, turns := 0, 0
			over := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return moved >= len(ids)
			}
			for range 4 {
				work.Go(func() {
					for !over() && !t.Failed() {
						r := command(t, sc.env, "dlq", "redrive", "--all", "--limit", "50", "--json", "-q")
						if r.refused() {
							continue
						}
						var d done
						if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != 0 {
							t.Errorf("exit %d: %s", r.code, r.all())
						}
						mu.Lock()
						moved, turns = moved+d.Done, turns+1
						mu.Unlock()
					}
				})
			}
			work.Wait()
			if moved != len(ids) {
				t.Errorf("%d messages, said to be moved in %d turns: %d", len(ids), turns, moved)
			}
			for _, id := range ids {
				if n := len(sc.app.await(id, 1)); n != 1 {
					t.Errorf("%s came %d times", id, n)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQRedriveOfMessagesThatFail ends by itself: each is tried once more, goes on counting and is parked again.
func TestDLQRedriveOfMessagesThatFail(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType, "MAX_RETRIES", "1", "CONCURRENCY", "30", "LOG_LEVEL", "info")
			sc.app.otherwise(func(*delivery) answer { return status(409) }) // a 500 would let the breaker pause before
			s := sc.run()
			ids := numbered("m", 200)
			sc.send(ids...)
			brokertest.Eventually(t, 2*patience, "all parked", func() bool { return sc.ready(sc.dlq()) == len(ids) })
			if d := sc.acted("redrive", "--all"); d.Done != len(ids) || d.Total != len(ids) || d.Failed != 0 {
				t.Errorf("%+v", d)
			}
			brokertest.Eventually(t, 2*patience, "all tried and parked again", func() bool {
				return sc.app.total() >= 3*len(ids) && sc.ready(sc.dlq()) == len(ids)
			})
			sc.settledAll(s, len(ids))
			for _, id := range ids {
				seen := sc.app.seen(id)
				if last := seen[len(seen)-1]; len(seen) != 3 || last.number("Amqp-Retry-Count") != 1 || last.header.Get("Amqp-Last-Attempt") != "true" {
					t.Errorf("%s came %d times, the last with %v", id, len(seen), last.header)
				}
			}
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sc.take(sc.dlq(), len(ids)) {
				h := d.Headers
				by, _ := h["x-redriven-by"].(string)
				if h["x-redriven-from"] != sc.dlq() || !strings.HasSuffix(by, "@"+host) || h["x-redriven-at"] == nil || asInt(h["x-redriven-count"]) != 1 || asInt(h["x-final-retry-count"]) != 1 || asInt(h["x-final-status-code"]) != 409 || h["x-final-reason"] != "max_retries" {
					t.Errorf("%s: %v", d.MessageId, h)
				}
			}
		})
	}
}
