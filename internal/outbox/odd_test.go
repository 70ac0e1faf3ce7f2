package outbox

import (
	"testing"

	"sidecar/internal/testkit/must"
)

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
