package outbox

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestLargeRows: many rows of a mebibyte in one batch take no more memory than the budget, and neither do headers that
// are small in the table and large as a text.
func TestLargeRows(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	r := newRig(t)
	r.options.Batch, r.options.MaxAttempts = 1000, 1
	r.memory(64 << 20)
	ch := brokertest.Channel(t, r.url)
	if err := ch.QueueUnbind(r.queue, "#", r.exchange, nil); err != nil { // it would hold all of it
		t.Fatal(err)
	}
	r.declare(ch, "small", map[string]any{"x-max-length": int32(1)})
	must.Do(t, ch.QueueBind("small", "#", r.exchange, false, nil))
	r.db.Exec(`ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL`)
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to(repeat('0123456789abcdef', 65536), 'UTF8') FROM generate_series(1, 150)`)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, headers) SELECT 'k', 'x', jsonb_build_object('a', jsonb_agg('[]'::jsonb)) FROM generate_series(1, 2000000)`)
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
	if n := r.rows(`sent_at IS NULL`); n != "1" {
		t.Errorf("%s rows failed", n)
	}
	if mib := peak.Load() >> 20; mib > 120 { // half of the budget, twice that for the collector, and what the test has
		t.Errorf("the heap grew to %d MiB", mib)
	}
}

// TestCostOfABody: a row's bytes are in memory three times at most while it is fetched. The buffer of the connection is
// a power of two, so a body that is a little larger than one costs most.
func TestCostOfABody(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	r := newRig(t)
	const size = 8<<20 + 1
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to(repeat('x', $1), 'UTF8')`, size)
	conn := r.db.Conn()
	s := &session{r: New(r.options), conn: conn, table: must.Get(readTable(t.Context(), conn, r.options.Names))(t)}
	must.Do(t, s.prepare(t.Context()))
	r.on(conn, `BEGIN`)
	rows := []*row{{id: "1", size: size, others: 100}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := &publishing{s: s}
	must.Do(t, s.readRows(t.Context(), rows, func(v [][]byte) error { return f.fill(rows[0], v[1:]) }))
	runtime.ReadMemStats(&after)
	const statement = 64 << 10 // what any statement allocates
	if took := after.TotalAlloc - before.TotalAlloc; len(rows[0].body) != size || took > uint64(cost(size, 100))+statement || took < 2*size {
		t.Errorf("a body of %d bytes took %d, %.2f times its size", len(rows[0].body), took, float64(took)/size)
	}
}
