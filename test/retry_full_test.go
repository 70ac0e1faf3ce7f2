package test

import (
	"testing"

	"sidecar/internal/brokertest"
)

// TestFullRetryQueueLosesNothing: a policy limits the length of a classic retry queue, which drops its oldest message.
// The broker dead-letters that message as one whose delay is over: it returns early, and its retry is counted.
func TestFullRetryQueueLosesNothing(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("QUEUE_TYPE", "classic", "MAX_RETRIES", "2", "RETRY_DELAY", "1s")
	brokertest.Ctl(t, "set_policy", "short", "retry-queue", `{"max-length":2}`)
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	s := sc.run()
	ids := numbered("m", 20)
	sc.send(ids...)
	eventually(t, "all are parked", func() bool { return sc.ready(sc.dlq()) == len(ids) })
	sc.settledAll(s, len(ids))
	for _, id := range ids {
		if n := len(sc.app.seen(id)); n != 3 {
			t.Errorf("%s: POSTed %d times", id, n)
		}
	}
}
