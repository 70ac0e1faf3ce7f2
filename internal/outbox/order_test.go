package outbox

import (
	"fmt"
	"strings"
	"testing"

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

// TestOrder: rows of a key are published in the order of their ids by two relays, also with a single key, which gives
// only one relay something to do at a time.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch = 20
	r.start()
	r.start()
	for keys, rows := range map[int]int{20: 20, 1: 80} {
		r.keyed(keys, rows)
		r.settled()
		r.inOrder(keys, rows)
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
