package outbox

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestLargeRows: many rows of a mebibyte in one batch take no more memory than what may be on its way at a time.
func TestLargeRows(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	r := newRig(t)
	r.options.Batch = 1000
	ch := brokertest.Channel(t, r.url)
	if err := ch.QueueUnbind(r.queue, "#", r.exchange, nil); err != nil { // it would hold all of it
		t.Fatal(err)
	}
	r.declare(ch, "small", map[string]any{"x-max-length": int32(1)})
	must.Do(t, ch.QueueBind("small", "#", r.exchange, false, nil))
	r.db.Exec(`ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL`)
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to(repeat('0123456789abcdef', 65536), 'UTF8') FROM generate_series(1, 150)`)
	runtime.GC()
	var peak atomic.Uint64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	r.start()
	r.settled()
	close(stop)
	<-ended
	if mib := peak.Load() >> 20; mib > 120 { // 32 MiB on their way, twice that for the collector, and what the test has
		t.Errorf("the heap grew to %d MiB", mib)
	}
}
