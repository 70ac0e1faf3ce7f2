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
