package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// placed is a line of an example of examples/outbox.
var placed = regexp.MustCompile(`(?m)^(committed|rolled back) +order (\d+): message (\S+)`)

// exampleTool is what scripts/examples.sh has set up for the examples.
func exampleTool(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is unset: run the tests by scripts/test.sh, or eval what scripts/examples.sh prints", name)
	}
	return v
}

// newOutbox makes an outbox and the table of the examples in a database of the scene's own.
func (sc *scene) newOutbox(t *testing.T) *postgrestest.Database {
	t.Helper()
	db := postgrestest.New(t)
	sc.with("OUTBOX_DSN", db.DSN)
	if r := command(t, sc.env, "outbox", "migrate"); r.code != 0 {
		t.Fatalf("migrate: exit %d: %s", r.code, r.all())
	}
	db.Exec(string(must.Get(os.ReadFile("../examples/outbox/schema.sql"))(t)))
	return db
}

// TestOutboxExamples: what the examples commit arrives at the app, with its content type, routing key and tracking ids,
// and nothing of what they roll back does.
func TestOutboxExamples(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"python": {exampleTool(t, "EXAMPLES_PYTHON"), "../examples/outbox/python/orders.py"},
		"node":   {"node", filepath.Join(exampleTool(t, "EXAMPLES_NODE"), "orders.js")},
		"go":     {exampleTool(t, "EXAMPLES_GO")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			db := sc.newOutbox(t)
			sc.run()
			example := launchBinary(t, argv[0], map[string]string{"DATABASE_URL": db.DSN}, append(argv[1:], `["before"]`)...)
			if code := example.exitCode(); code != 0 {
				t.Fatalf("exit %d: %s", code, example.log.String())
			}
			committed, rolledBack := map[string]string{}, ""
			var first string
			for _, line := range placed.FindAllStringSubmatch(example.log.String(), -1) {
				if line[1] == "rolled back" {
					rolledBack = line[3]
					continue
				}
				if first == "" {
					first = line[3]
				}
				committed[line[3]] = line[2]
			}
			if len(committed) != 4 || rolledBack == "" {
				t.Fatalf("not four orders and one that is rolled back: %s", example.log.String())
			}
			for id, order := range committed {
				checkOrder(t, sc.app.await(id, 1)[0], order, id == first)
			}
			eventually(t, "all rows are marked as sent", func() bool {
				return db.Value(`SELECT count(*) FROM outbox WHERE sent_at IS NULL`) == "0"
			})
			if got := db.Value(`SELECT count(*) FROM orders`); got != "4" {
				t.Errorf("%s orders in the table, want 4", got)
			}
			if len(sc.app.Seen(rolledBack)) > 0 || sc.app.total() != 4 {
				t.Errorf("%d messages arrived, %d of them rolled back", sc.app.total(), len(sc.app.Seen(rolledBack)))
			}
		})
	}
}

func checkOrder(t *testing.T, d *delivery, order string, tracked bool) {
	t.Helper()
	var body struct {
		Order    json.Number
		Customer string
		Cents    int
	}
	if err := json.Unmarshal(d.Body, &body); err != nil || body.Order.String() != order || body.Customer == "" || body.Cents == 0 {
		t.Errorf("order %s has the body %s: %v", order, d.Body, err)
	}
	chain := []string{d.ID}
	if tracked {
		chain = []string{"before", d.ID}
	}
	var got []string
	if err := json.Unmarshal([]byte(d.Header.Get("Amqp-Header-X-Outbox-Tracking-Ids")), &got); err != nil || !slices.Equal(got, chain) {
		t.Errorf("order %s was tracked by %v, want %v: %v", order, got, chain, err)
	}
	if key, kind := d.Header.Get("Amqp-Routing-Key"), d.Header.Get("Content-Type"); key != "order.placed" || kind != "application/json" {
		t.Errorf("order %s came with the routing key %q as %q", order, key, kind)
	}
}

// TestPublishExamples: while the broker is away each example gets 503 and tries again; then its message arrives once,
// under the key that it was sent with.
func TestPublishExamples(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"python": {exampleTool(t, "EXAMPLES_PYTHON"), "../examples/publish/python/publish.py"},
		"node":   {"node", "../examples/publish/node/publish.mjs"},
		"go":     {exampleProgram(t, "publish/go")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			p := linked(t, sc.with("PUBLISH_ADDR", "127.0.0.1:0"))
			s := sc.run()
			address := s.log.find(func(e entry) bool { return e.is("listening") })[0].text("publish")

			p.Refuse()
			example := launchBinary(t, argv[0], nil, append(argv[1:], "http://"+address+"/publish/default/order.placed", `{"order":1}`)...)
			eventually(t, "503", func() bool { return example.log.mentions("not yet: 503") })
			p.Restore(t)
			if code := example.exitCode(); code != 0 {
				t.Fatalf("exit %d: %s", code, example.log.String())
			}
			_, key, _ := strings.Cut(example.log.String(), "published ")
			d := sc.app.await(strings.TrimSpace(key), 1)[0]
			if string(d.Body) != `{"order":1}` || d.Header.Get("Content-Type") != "application/json" || d.Header.Get("Amqp-Routing-Key") != "order.placed" {
				t.Errorf("%s came as %v", d.Body, d.Header)
			}
			if sc.app.total() != 1 {
				t.Errorf("%d messages arrived, want 1", sc.app.total())
			}

			r := launchBinary(t, argv[0], nil, append(slices.Clone(argv[1:]), "http://[", "{}")...)
			if code := r.exitCode(); code != 64 || !r.log.mentions("usage:") {
				t.Errorf("exit %d: %s", code, r.log.String())
			}
			missing := launchBinary(t, argv[0], nil, append(argv[1:], "http://"+address+"/publish/missing/order.placed", `{}`)...)
			if code := missing.exitCode(); code == 0 || missing.log.mentions("not yet") || !missing.log.mentions("403") {
				t.Errorf("to an exchange that is not allowed: exit %d: %s", code, missing.log.String())
			}
		})
	}
}

// outboxTable is what an app that does not use 'sidecar outbox migrate' would make.
const outboxTable = `CREATE TABLE outbox (
	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL DEFAULT gen_random_uuid(), exchange text,
	routing_key text NOT NULL, body bytea NOT NULL, headers jsonb, properties jsonb, tracking_ids jsonb, ordering_key text,
	created_at timestamptz NOT NULL DEFAULT now(), send_after timestamptz NOT NULL DEFAULT now(), sent_at timestamptz,
	attempts integer NOT NULL DEFAULT 0, last_error text, quarantined_at timestamptz);
	CREATE INDEX outbox_pending ON outbox (send_after, id) WHERE sent_at IS NULL AND quarantined_at IS NULL`

// TestOutbox: a row that was committed comes to the app by way of the service's own exchange, as a message with all
// that the row says, also rows that are committed while the broker is away and after the database has ended all
// sessions. Readiness and the metrics include the outbox.
func TestOutbox(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	sc := newScene(t).with("OUTBOX_DSN", db.DSN, "OUTBOX_POLL_INTERVAL", "100ms").seed()
	p := linked(t, sc)
	s := sc.run()
	eventually(t, "readiness names the table that is missing", func() bool {
		_, body := s.get(s.admin, "/readyz")
		return strings.Contains(body, "no such table")
	})
	db.Exec(outboxTable)
	id := db.Value(`INSERT INTO outbox (routing_key, body, headers, properties, tracking_ids) VALUES ('orders.new', '{"n": 1}',
		'{"x-tenant": "t 1", "x-n": 7, "x-death": [], "CC": ["elsewhere"]}',
		'{"content_type": "application/json", "correlation_id": "c1", "type": "order", "priority": 3}', '["a", "b"]') RETURNING message_id`)
	d := sc.app.await(id, 1)[0]
	if string(d.Body) != `{"n": 1}` || d.Header.Get("Amqp-Header-Cc")+d.Header.Get("Amqp-Header-X-Death") != "" {
		t.Errorf("%s %v", d.Body, d.Header)
	}
	checkHeaders(t, id, d, map[string]string{
		"Content-Type": "application/json", "Amqp-Correlation-Id": "c1", "Amqp-Type": "order", "Amqp-Routing-Key": "orders.new", "Amqp-Exchange": sc.exchange(),
		"Amqp-Header-X-Tenant": "t 1", "Amqp-Header-X-N": "7", "Amqp-Header-X-Outbox-Tracking-Ids": `["a","b","` + id + `"]`,
	})
	eventually(t, "the row is marked", func() bool { return db.Value(`SELECT count(*) FROM outbox WHERE sent_at IS NULL`) == "0" })
	if n := s.metric("sidecar_outbox_rows_total", `result="sent"`); n != 1 {
		t.Errorf("%v rows sent", n)
	}
	if n := s.metric("sidecar_outbox_connected"); n != 1 {
		t.Errorf("connected: %v", n)
	}
	if _, body := s.get(s.admin, "/readyz"); !strings.Contains(body, `"outbox"`) {
		t.Errorf("readiness says nothing of the outbox: %s", body)
	}
	p.Refuse()
	ids := db.Query(`INSERT INTO outbox (routing_key, body) SELECT 'k', 'x' FROM generate_series(1, 200) RETURNING message_id`)
	db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	ids = append(ids, db.Query(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'x') RETURNING message_id`)...)
	p.Restore(t)
	eventually(t, "all rows are marked", func() bool { return db.Value(`SELECT count(*) FROM outbox WHERE sent_at IS NULL`) == "0" })
	for _, row := range ids {
		sc.app.await(row[0], 1)
	}
	s.stop()
}
