package outbox

import (
	"runtime"
	"testing"

	"sidecar/internal/testkit/must"
)

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
