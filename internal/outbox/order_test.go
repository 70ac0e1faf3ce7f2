package outbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// keyed inserts rows with keys: n rounds of one row for each of the keys, their bodies "KEY n".
func (r *rig) keyed(keys, n int) {
	r.t.Helper()
	r.db.Exec(`INSERT INTO outbox (routing_key, body, ordering_key)
		SELECT 'k', convert_to(k || ' ' || lpad(n::text, 6, '0'), 'UTF8'), k::text FROM generate_series(1, $2::int) n, generate_series(1, $1::int) k ORDER BY n, k`, keys, n)
}

// inOrder demands that the messages of each key came in their order, n of them. One that comes once more, after a
// fault, is no matter.
func (r *rig) inOrder(keys, n int) {
	r.t.Helper()
	last, seen, count := map[string]string{}, map[string]bool{}, map[string]int{}
	for _, d := range r.take() {
		body := string(d.Body)
		if seen[body] {
			continue
		}
		seen[body] = true
		key, number, _ := strings.Cut(body, " ")
		if number < last[key] {
			r.t.Errorf("key %s: %s came after %s", key, number, last[key])
		}
		last[key] = number
		count[key]++
	}
	for k := 1; k <= keys; k++ {
		if got := count[fmt.Sprint(k)]; got != n {
			r.t.Errorf("key %d: %d different messages, want %d", k, got, n)
		}
	}
}

// TestOrderUnderNacks: while the broker nacks the first row of a key, no later row of the key is sent, neither in the
// same batch nor in a later one. Rows of other keys are sent.
func TestOrderUnderNacks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ch := brokertest.Channel(t, r.url)
	r.declare(ch, "full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	brokertest.Publish(t, ch, "", "full", amqp.Publishing{})
	r.db.Exec(`INSERT INTO outbox (routing_key, body, exchange, ordering_key) VALUES ('full', '1 000000', '', '1')`)
	r.keyed(2, 20)
	r.start()
	r.eventually("the row is nacked again and again", func() bool { return r.read()["nacked"] >= 3 })
	r.eventually("the rows of the other key are sent", func() bool {
		return r.rows(`ordering_key = '2' AND sent_at IS NULL`) == "0"
	})
	wantRows(t, r.db, 0, `ordering_key = '1' AND sent_at IS NOT NULL`)
	must.Get(ch.QueuePurge("full", false))(t)
	r.settled()
	r.inOrder(2, 20)
}

// TestOrderBehindPoison: rows behind one that fails wait for it, do not delay other keys, and go when it
// is quarantined.
func TestOrderBehindPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch, r.options.MaxAttempts = 10, 3
	r.db.Exec(`INSERT INTO outbox (routing_key, body, exchange, ordering_key) VALUES ('k', 'poison', 'no such exchange', '1')`)
	r.keyed(1, 100) // more than fit a batch, and in front of all others
	r.db.Exec(`INSERT INTO outbox (routing_key, body, ordering_key) SELECT 'k', convert_to('2 ' || lpad(n::text, 6, '0'), 'UTF8'), '2' FROM generate_series(1, 50) n`)
	r.start()
	r.eventually("the other key's rows are sent", func() bool {
		return r.rows(`ordering_key = '2' AND sent_at IS NULL`) == "0"
	})
	if sent := r.rows(`ordering_key = '1' AND sent_at IS NOT NULL`); sent != "0" {
		wantRows(t, r.db, 1, `body = 'poison' AND quarantined_at IS NOT NULL`)
	}
	r.settled()
	wantRows(t, r.db, 0, `ordering_key = '1' AND sent_at < (SELECT quarantined_at FROM outbox WHERE body = 'poison')`)
	wantValue(t, r.db, "3", `SELECT attempts FROM outbox WHERE body = 'poison'`)
	r.inOrder(1, 100)
}

// TestOrderWhenARelayIsCutOff: the rows of a relay that loses its database after it has published go again, by another
// one, and none of a key overtakes another.
func TestOrderWhenARelayIsCutOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch = 15
	r.keyed(5, 30)
	r.start()
	r.start()
	for range 3 {
		r.cutOff()
		r.eventually("a relay is back", func() bool { return r.db.Value(`SELECT count(*) > 0 FROM pg_stat_activity WHERE `+relayIs) == "t" })
	}
	r.settled()
	r.inOrder(5, 30)
}

// TestOddTimes: whatever times a row has, it stops neither the relay nor status.
func TestOddTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`ALTER TABLE outbox ALTER send_after TYPE timestamp, ALTER created_at TYPE timestamp;
		INSERT INTO outbox (routing_key, body, ordering_key, send_after, created_at) SELECT 'k', convert_to(d, 'UTF8'), d, d::timestamp, d::timestamp
		FROM unnest(ARRAY['-infinity', '4713-01-01 BC', '0044-03-15 BC', '0001-01-01', '1970-01-01', '9999-12-31', '294276-12-31 23:59:59', 'infinity']) d;
		INSERT INTO outbox (routing_key, body, ordering_key) SELECT 'k', convert_to('after ' || d, 'UTF8'), d
		FROM unnest(ARRAY['-infinity', '4713-01-01 BC', '9999-12-31', '294276-12-31 23:59:59', 'infinity']) d;
		INSERT INTO outbox (routing_key, body, quarantined_at) SELECT 'k', 'given up', d::timestamp
		FROM unnest(ARRAY['-infinity', '4713-01-01 BC', '294276-12-31 23:59:59', 'infinity']) d`)
	s := must.Get(ReadStatus(t.Context(), r.db.Conn(), r.options.Names))(t)
	if s.Pending != 13 || s.Waiting != 3 || len(s.Rows) != 4 || s.Lag < 0 {
		t.Errorf("%+v", s)
	}
	relay, _ := r.start()
	r.eventually("the due rows are sent", func() bool {
		return r.rows(`sent_at IS NOT NULL`) == "7"
	})
	if all := r.read(); all["sidecar_outbox_pending_rows"] != 13 || all["sidecar_outbox_lag_seconds"] < 0 || all["sidecar_outbox_lag_seconds"] > 1e11 {
		t.Errorf("%v", all)
	}
	if s := relay.State(); !s.Connected || s.Problem != "" {
		t.Errorf("%+v", s)
	}
	r.wantBodies(7, "-infinity", "after -infinity")
}

// TestFollowersOfAWaitingHead: rows behind one that is due much later, or never, check again soon, so that they go when
// it is deleted or moved.
func TestFollowersOfAWaitingHead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, ordering_key, send_after)
		SELECT 'k', convert_to('head ' || d, 'UTF8'), d, now() + d::interval FROM unnest(ARRAY['30 days', '300 days']) d
		UNION ALL SELECT 'k', 'head infinity', 'infinity', 'infinity';
		INSERT INTO outbox (routing_key, body, ordering_key)
		SELECT 'k', convert_to(n || ' ' || d, 'UTF8'), d FROM unnest(ARRAY['30 days', '300 days', 'infinity']) d, generate_series(1, 2) n`)
	_, stop := r.start()
	const followers = `body NOT LIKE 'head%' AND `
	r.eventually("the followers wait", func() bool { return r.rows(followers+`send_after > now()`) == "6" })
	stop()
	wantRows(t, r.db, 0, followers+`send_after > now() + interval '1 minute'`)
	r.db.Exec(`DELETE FROM outbox WHERE body = 'head 30 days'; DELETE FROM outbox WHERE body = 'head infinity';
		UPDATE outbox SET send_after = now() WHERE body = 'head 300 days';
		UPDATE outbox SET send_after = send_after - interval '1 minute' WHERE body NOT LIKE 'head%'`) // a minute later
	r.start()
	r.settled()
	r.wantBodies(7)
}

// TestAttemptsAtTheEnd: rows that failed as often as their type can say, or less than never, fail like others.
func TestAttemptsAtTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`ALTER TABLE outbox ALTER attempts TYPE smallint, ALTER attempts DROP NOT NULL;
		INSERT INTO outbox (routing_key, body, exchange, attempts) VALUES
			('k', 'last', 'no such', 32767), ('k', 'first', 'no such', -32768), ('k', 'null', 'no such', NULL), ('k', 'good', NULL, 32767)`)
	r.start()
	r.eventually("all have failed", func() bool { return r.rows(`last_error IS NOT NULL`) == "3" })
	if n := r.rows(`body = 'null' AND send_after < clock_timestamp() + interval '10 seconds'
		OR body = 'last' AND attempts = 32767 AND quarantined_at IS NOT NULL OR body = 'first' AND attempts < 0 AND quarantined_at IS NULL`); n != "3" {
		t.Errorf("%v", r.db.Query(`SELECT convert_from(body, 'UTF8'), attempts, send_after, quarantined_at FROM outbox`))
	}
	r.eventually("the good one is sent", func() bool { return r.bodies()["good"] == 1 })
}

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
