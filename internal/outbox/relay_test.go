package outbox

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestCommittedRowsAreSent: each committed row is sent, once without a fault, and a rolled-back one never: a backlog
// batch after batch, and later rows when a notification comes, without a poll.
func TestCommittedRowsAreSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.PollInterval = time.Hour
	r.insert("before", 250)
	r.start()
	back := r.db.Conn()
	r.on(back, `BEGIN; INSERT INTO outbox (routing_key, body) SELECT 'k', 'never' FROM generate_series(1, 50)`)
	r.insert("after", 250)
	r.on(back, `ROLLBACK`)
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

// TestManyRelays: relays that work on one table at once send each row once.
func TestManyRelays(t *testing.T) {
	t.Parallel()
	const rows = 2000
	r := newRig(t)
	r.insert("m", rows)
	for range 4 {
		r.start()
	}
	r.settled()
	bodies := r.bodies()
	for n := 1; n <= rows; n++ {
		if got := bodies[fmt.Sprintf("m %d", n)]; got != 1 {
			t.Errorf("m %d came %d times", n, got)
		}
	}
}

// TestLaterRows: a row that is due later is not sent before, and then by polling alone.
func TestLaterRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.connected()
	r.db.Exec(`INSERT INTO outbox (routing_key, body, send_after) VALUES ('k', 'later', now() + interval '500 milliseconds'), ('k', 'now', now())`)
	r.settled()
	if took := r.db.Value(`SELECT sent_at > send_after FROM outbox WHERE body = 'later'`); took != "t" {
		t.Error("the row was sent before it was due")
	}
	if bodies := r.bodies(); bodies["later"] != 1 || bodies["now"] != 1 {
		t.Errorf("%v", bodies)
	}
}

// TestStop: a relay that is asked to stop ends, and what it had not sent it leaves for others.
func TestStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const rows = 1000
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
	if bodies := r.bodies(); len(bodies) != rows {
		t.Errorf("%d different messages", len(bodies))
	}
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
	r.eventually("it is idle", func() bool {
		return r.db.Value(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == "1"
	})
	r.on(other, `ROLLBACK`)
	r.settled()
}
