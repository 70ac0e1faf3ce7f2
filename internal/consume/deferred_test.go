package consume

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/message"
)

// TestDeferredMessagesLoseNoRetry: the app fails everything until messages that failed before have been deferred again
// and again. Each goes on with the retries it had: there are more of them than the machine, however busy, fits in before
// the breaker opens.
func TestDeferredMessagesLoseNoRetry(t *testing.T) {
	t.Parallel()
	f := &failing{}
	for name, s := range map[string]settings{
		"classic":       {},
		"native":        {native: true},
		"in order":      {order: byKey},
		"not published": {publisher: f.before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40
			var well atomic.Bool
			s.concurrency, s.prefetch, s.maxRetries, s.retryDelay = 4, 64, 1000, 50*time.Millisecond
			var posts seen
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				if before := posts.Add(m.MessageID) - 1; m.RetryCount != before {
					t.Errorf("%s has %d retries after %d attempts", m.MessageID, m.RetryCount, before)
				}
				if well.Load() {
					return answer(200)
				}
				return answer(500)
			}), s)
			for i := range n {
				r.publishKeyed(fmt.Sprint(i), 0, 1)
			}
			r.eventually("messages are deferred", func() bool { return r.count(message.Release, message.ReasonDeferred) >= 2*n })
			well.Store(true)
			r.acked(n)
		})
	}
}
