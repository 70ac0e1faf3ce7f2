package outbox

import (
	"fmt"
	"testing"
)

// TestCommittedRowsAreSent: each committed row is sent, once without a fault, and a rolled-back one never.
func TestCommittedRowsAreSent(t *testing.T) {
	r := newRig(t)
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to('before ' || n, 'UTF8') FROM generate_series(1, 250) n`)
	r.start()
	back := r.db.Conn()
	if err := exec(t.Context(), back, `BEGIN; INSERT INTO outbox (routing_key, body) SELECT 'k', 'never' FROM generate_series(1, 50)`); err != nil {
		t.Fatal(err)
	}
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to('after ' || n, 'UTF8') FROM generate_series(1, 250) n`)
	if err := exec(t.Context(), back, `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	r.settled()
	bodies := r.bodies()
	for n := 1; n <= 250; n++ {
		for _, when := range []string{"before", "after"} {
			if got := bodies[fmt.Sprintf("%s %d", when, n)]; got != 1 {
				t.Errorf("%s %d came %d times", when, n, got)
			}
		}
	}
	if len(bodies) != 500 {
		t.Errorf("%d different bodies", len(bodies))
	}
}
