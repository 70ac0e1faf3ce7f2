package outbox

import (
	"strconv"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestCommittedRowsAreSent: each committed row is sent, once without a fault, by whichever of four relays, and a rolled-back
// one never: a backlog batch after batch, and later rows when a notification comes, without a poll.
func TestCommittedRowsAreSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.PollInterval = time.Hour
	r.insert("before", 500)
	for range 4 {
		r.start()
	}
	back := r.db.Conn()
	r.on(back, `BEGIN; INSERT INTO outbox (routing_key, body) SELECT 'k', 'never' FROM generate_series(1, 50)`)
	r.insert("after", 250)
	r.on(back, `ROLLBACK`)
	r.settled()
	all := r.take()
	bodies := map[string]bool{}
	for _, d := range all {
		bodies[string(d.Body)] = true
	}
	if len(all) != 750 || len(bodies) != 750 || bodies["never"] {
		t.Errorf("%d messages, %d different bodies", len(all), len(bodies))
	}
}

// TestLaterRows: a row that is due later is not sent before, and then by polling alone.
func TestLaterRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.connected()
	r.db.Exec(`INSERT INTO outbox (routing_key, body, send_after) VALUES ('k', 'later', now() + interval '500 milliseconds'), ('k', 'now', now())`)
	r.settled()
	wantValue(t, r.db, "t", `SELECT sent_at > send_after FROM outbox WHERE body = 'later'`)
	if bodies := r.bodies(); bodies["later"] != 1 || bodies["now"] != 1 {
		t.Errorf("%v", bodies)
	}
}

// TestStop: a relay that is asked to stop ends, and what it had not sent it leaves for others.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const rows = 500
	r.options.Batch = 20
	r.insert("m", rows)
	_, stop := r.start()
	r.eventually("some rows are sent", func() bool { return brokertest.Ready(t, r.url, r.queue) > 0 })
	stop()
	left, _ := strconv.Atoi(r.rows(`sent_at IS NULL`))
	if got := brokertest.Ready(t, r.url, r.queue); got != rows-left {
		t.Errorf("%d messages, and %d rows of %d left", got, left, rows)
	}
	r.start()
	r.settled()
	r.wantBodies(rows)
}

// TestHeldKeyIsClaimedAgain: there is no notification when another session lets go of a row of which others of its key wait.
func TestHeldKeyIsClaimedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.PollInterval = time.Hour
	r.db.Exec(`INSERT INTO outbox (routing_key, body, ordering_key) VALUES ('k', '1', 'a'), ('k', '2', 'a')`)
	other := r.db.Conn()
	r.on(other, `BEGIN; SELECT 1 FROM outbox WHERE body = '1' FOR UPDATE`)
	r.start()
	r.eventually("it is idle", func() bool { return r.idleBackends() != "" })
	r.on(other, `ROLLBACK`)
	r.settled()
}
