//go:build nightly

package test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPublishersBesideLargeMessages: clients that publish all the time take what memory the messages of the app leave,
// and their buffers are soon garbage. Both together stay within the limit.
func TestPublishersBesideLargeMessages(t *testing.T) {
	t.Parallel()
	load := largeLoad{3, 60}
	if size, _ := largest(t); size < load.mib<<20 {
		load = largeLoad{12, 15}
	}
	sc := publishing(t).with("CONCURRENCY", "20", "MAX_BODY", "60MiB", "MAX_RETRIES", "30", "RETRY_DELAY", "1s", "LOG_LEVEL", "info")
	var posts atomic.Int64
	sc.with("APP_URL", newLargeApp(t, func(w http.ResponseWriter, _ int) {
		if posts.Add(1) <= 20 {
			time.Sleep(time.Second) // is memory held
			w.WriteHeader(http.StatusInternalServerError)
		}
	}).URL)
	alone(t)
	sc.putLarge(sc.exchange(), "k", load)
	s := sc.confined(plainLimit)
	var published atomic.Int64
	peak := s.peakAnonymous(func() {
		body := strings.Repeat("0123456789abcdef", 8<<16)
		var clients sync.WaitGroup
		for range 12 {
			clients.Go(func() {
				for range 6 {
					if status, _, _ := s.send("/publish/default/k", body, nil); status == http.StatusNoContent {
						published.Add(1)
					}
					time.Sleep(50 * time.Millisecond) // is the load
				}
			})
		}
		clients.Wait()
		s.awaitSettled("ack", load.count+int(published.Load()))
	})
	t.Logf("%d MiB of anonymous memory at the peak, %d published", peak, published.Load())
	if bar := s.limit * 86 / 100; peak > bar || published.Load() == 0 {
		t.Errorf("%d MiB of anonymous memory at the peak, the limit is %d; %d published", peak, bar, published.Load())
	}
	s.alive()
	sc.settledAll(s.sidecar, 0)
}
