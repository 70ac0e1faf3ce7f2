package outbox

import (
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestVacuum: the space of rows that were marked is free again although autovacuum never comes. A role that may not
// vacuum does not try to, which the server would log each time.
func TestVacuum(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`ALTER TABLE outbox SET (autovacuum_enabled = off)`)
	r.insert("before", 1200)
	relay, stop := r.start(func(o *Options) { o.limits.vacuum = 1000 })
	r.settled()
	r.eventually("the table is vacuumed", func() bool {
		return r.db.Value(`SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'outbox'`) == "1"
	})
	stop()
	if relay.vacuuming.Load() || strings.Contains(r.log.String(), "not vacuumed") {
		t.Errorf("log: %s", r.log.String())
	}
	role := r.db.Role("word", `GRANT SELECT, UPDATE ON outbox TO %s`)
	if table := must.Get(Ready(t.Context(), openAs(t, role), r.options.Names))(t); table.Vacuums {
		t.Error("the role of a relay that is not the owner may vacuum")
	}
}
