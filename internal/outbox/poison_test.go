package outbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestPoison: a row that the broker does not take, whatever the reason, is tried so often and then quarantined with the
// reason, and the rows around it are sent, before and without waiting for it.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.MaxAttempts = 2
	user := brokertest.User(t, "word")
	brokertest.Ctl(t, "set_permissions", user, ".*", "^"+r.exchange+"$|^amq\\.default$", ".*")
	r.user = strings.Replace(r.url, "guest:guest", user+":word", 1)
	// Columns of text may hold what is not JSON.
	r.db.Exec(`ALTER TABLE outbox ALTER headers TYPE text, ALTER properties TYPE text`)
	kinds := []struct{ columns, values, says string }{
		{"body, headers", `'x', jsonb_build_object('x-large', repeat('x', 200000))`, `headers: header "x-large": with everything before it too large for a frame`},
		{"body, headers", `'x', '[1]'`, "not a JSON object"},
		{"body, headers", `'x', '{"a": 1} trailing'`, "after top-level value"},
		{"body, headers", `'x', ''`, "unexpected end of JSON input"},
		{"body, properties", `'x', '{}{}'`, "after top-level value"},
		{"body, tracking_ids", `'x', '{"a": 1}'`, "not an array of strings"},
		{"body, properties", `'x', '{"expiration": "soon"}'`, "must be milliseconds"},
		{"body, properties", `'x', '{"user_id": "guest"}'`, `property "user_id" is the broker user`},
		{"body, properties", `'x', jsonb_build_object('app_id', repeat('x', 256))`, `property "app_id" has 256 bytes; AMQP allows 255`},
		{"body, properties", `'x', '{"reply_to": "amq.rabbitmq.reply-to"}'`, `reply-to "amq.rabbitmq.reply-to"`},
		{"body, routing_key", `'x', repeat('k', 256)`, "routing_key of 256 bytes: at most 255"},
		{"body, exchange", `'x', ''`, "312 NO_ROUTE"},
		{"body, exchange", `'x', 'amq.default'`, "312 NO_ROUTE"},
		{"body, exchange, routing_key", `'x', '', 'amq.rabbitmq.reply-to.AAAA.AAAA'`, "no requester has this address"},
		{"body, exchange", `'x', '` + r.exchange + `.not'`, "refused by the broker"}, // no right, or no exchange
		{"body, exchange", `'x', 'amq.direct'`, "403 ACCESS_REFUSED"},
	}
	for i, k := range kinds {
		r.insert(fmt.Sprintf("neighbour %d", i), 20)
		columns, values := k.columns, k.values
		if !strings.Contains(columns, "routing_key") {
			columns, values = columns+", routing_key", values+", 'k'"
		}
		r.db.Exec(fmt.Sprintf(`INSERT INTO outbox (%s) VALUES (%s)`, columns, values))
	}
	relay, _ := r.start()
	r.settled()
	rows := r.db.Query(`SELECT attempts, quarantined_at IS NOT NULL, sent_at IS NULL, last_error FROM outbox WHERE body NOT LIKE 'neighbour%' ORDER BY id`)
	if len(rows) != len(kinds) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, k := range kinds {
		if row := rows[i]; row[0] != "2" || row[1] != "t" || row[2] != "t" || !strings.Contains(row[3], k.says) || len(row[3]) > 1100 {
			t.Errorf("%s = %.80s: %v, want the error to hold %q", k.columns, k.values, row, k.says)
		}
	}
	r.wantBodies(20 * len(kinds))
	if s := relay.State(); !s.Connected {
		t.Errorf("%+v", s)
	}
}

// TestRetryIsOutsideTheStream: a row that has failed before and closes its channel again leaves no row beside it unknown.
func TestRetryIsOutsideTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insert("before", 45)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, exchange, attempts) SELECT 'k', convert_to('poison', 'UTF8'), 'no such ' || n, 1 FROM generate_series(1, 5) n`)
	r.insert("after", 45)
	r.start()
	r.settled()
	if all := r.read(); all["unknown"] != 0 || all["sent"] != 90 {
		t.Errorf("%v", all)
	}
	if all := r.take(); len(all) != 90 {
		t.Errorf("%d messages", len(all))
	}
}

// TestFullQueue: rows that a full queue does not take are in the log once, do not count as failed, and are sent when it
// has room.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.MaxAttempts = 1
	ch := brokertest.Channel(t, r.url)
	r.declare(ch, "full", amqp.Table{"x-max-length": int32(10), "x-overflow": "reject-publish"})
	r.db.Exec(`INSERT INTO outbox (routing_key, body, exchange) SELECT 'full', 'x', '' FROM generate_series(1, 40)`)
	r.insert("other", 50)
	r.start()
	r.eventually("the others are sent", func() bool { return r.rows(`exchange IS NULL AND sent_at IS NULL`) == "0" })
	r.eventually("they are nacked for the second time", func() bool { return r.read()["nacked"] >= 60 })
	got := r.lines("outbox rows nacked") // which fails when there are two lines
	for text, ids := range got {
		if len(got) != 1 || !strings.Contains(text, `"full"`) || len(ids) != maxLogged {
			t.Errorf("%q: %v", text, ids)
		}
	}
	came := must.Get(ch.Consume("full", "", true, false, false, false, nil))(t)
	for range 40 {
		<-came
	}
	r.settled()
	wantRows(t, r.db, 0, `attempts > 0 OR last_error IS NOT NULL`)
}

// TestJudge: an unknown outcome is not a failure, whatever the text beside it says.
func TestJudge(t *testing.T) {
	t.Parallel()
	refused := &broker.RefusedError{Code: 404, Text: "NOT_FOUND"}
	for _, tc := range []struct {
		err  error
		want result
	}{
		{nil, sent}, {broker.ErrNacked, nacked}, {refused, failed}, {broker.ErrUnroutable, failed}, {broker.ErrInvalid, failed},
		{broker.ErrTooLarge, failed}, {fmt.Errorf("%w: %w", broker.ErrUnknown, refused), unknown},
		{fmt.Errorf("%w: %w", broker.ErrDisconnected, refused), untouched}, {broker.ErrBlocked, untouched}, {broker.ErrBusy, untouched},
		{fmt.Errorf("%w: %w", broker.ErrUnknown, broker.ErrBlocked), unknown}, {amqp.ErrClosed, untouched},
	} {
		if got := resultOf(tc.err); got != tc.want {
			t.Errorf("%v is %v, want %v", tc.err, got, tc.want)
		}
	}
}
