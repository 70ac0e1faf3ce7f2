package test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// parkMany parks messages with those ids at once.
func (sc *scene) parkMany(status int, ids ...string) {
	sc.t.Helper()
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = parked(id, status)
	}
	sc.park(list...)
}

// refused reports whether a command found the queue in use, and says so.
func (r result) refused() bool {
	return r.code == 1 && strings.Contains(r.stderr, "is in use: another operation runs on it")
}

// TestDLQLooksTogether: of several that look at the same time each sees all of the queue or is refused, never a part of it,
// and all messages keep their places.
func TestDLQLooksTogether(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 1000)
			sc.parkMany(503, ids...)
			var work sync.WaitGroup
			for range 4 {
				work.Go(func() {
					for range 6 {
						r := command(t, sc.env, "dlq", "redrive", "--dry-run", "--json", "-q")
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
