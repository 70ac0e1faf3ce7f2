package test

import (
	"context"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// outboxDoc is docs/outbox.md.
func outboxDoc(t *testing.T) string {
	t.Helper()
	return string(must.Get(os.ReadFile("../docs/outbox.md"))(t))
}

// block is what docs/outbox.md has below such a comment.
func block(t *testing.T, comment string) string {
	t.Helper()
	_, rest, found := strings.Cut(outboxDoc(t), "<!-- "+comment+" -->\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed || text == "" {
		t.Fatalf("docs/outbox.md has no block %q", comment)
	}
	return text
}

// TestOutboxDoc: docs/outbox.md shows the examples as they are.
func TestOutboxDoc(t *testing.T) {
	t.Parallel()
	checkShown(t, "../docs/outbox.md", 3)
}

// checkShown wants a page to show parts of n files as they are.
func checkShown(t *testing.T, page string, n int) {
	t.Helper()
	form := regexp.MustCompile("<!-- shown: (\\S+) -->\n```\\w+\n(?s:(.+?))```\n")
	shown := form.FindAllStringSubmatch(string(must.Get(os.ReadFile(page))(t)), -1)
	for _, block := range shown {
		if source := must.Get(os.ReadFile("../" + block[1]))(t); !strings.Contains(string(source), block[2]) {
			t.Errorf("%s does not show %s as it is", page, block[1])
		}
	}
	if len(shown) != n {
		t.Errorf("%s shows %d examples, want %d", page, len(shown), n)
	}
}

// TestOutboxDocSQL: the statements of docs/outbox.md do what it says, and the relay gets along with the rights that it
// gives.
func TestOutboxDocSQL(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	db := sc.newOutbox(t)
	sc.with("OUTBOX_DSN", db.Role("word", strings.Replace(block(t, "tested: grants of the relay"), " TO relay", " TO %s", 1))).run()
	db.Exec(block(t, "tested: autovacuum"))
	db.Exec(`INSERT INTO orders (customer, cents) VALUES ('ada', 100)`)
	db.Exec(block(t, "tested: emit"))
	db.Exec(block(t, "tested: set"))
	db.Exec(block(t, "tested: later"))
	app := db.Role("word", strings.Replace(block(t, "tested: grants of the app"), " TO app", " TO %s", 1))
	conn := must.Get(pgconn.Connect(t.Context(), app))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `INSERT INTO outbox (routing_key, body) VALUES ('a', 'b') RETURNING message_id`).ReadAll(); err != nil {
		t.Errorf("the app cannot emit: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT body FROM outbox`).ReadAll(); err == nil {
		t.Error("the app can read all messages")
	}
	eventually(t, "three messages are sent", func() bool { return db.Value(`SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL`) == "3" })
	for _, row := range db.Query(`SELECT message_id, ordering_key FROM outbox WHERE sent_at IS NOT NULL AND routing_key = 'order.changed'`) {
		d := sc.app.await(row[0], 1)[0]
		body, tenant, kind := `{"order" : 1, "cents" : 4400}`, "", ""
		if row[1] != "NULL" {
			body, tenant, kind = `{"order": 1, "cents": 4300}`, "north", "OrderChanged"
		}
		if string(d.Body) != body || d.Header.Get("Amqp-Header-Tenant") != tenant || d.Header.Get("Amqp-Type") != kind ||
			d.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s came with %v", d.Body, d.Header)
		}
	}
	if due := db.Value(`SELECT send_after > now() + interval '50 minutes' FROM outbox WHERE sent_at IS NULL`); due != "t" {
		t.Error("the reminder is not due in an hour")
	}
}

// TestInboxOfTheDocument: a message that comes twice is worked on once, also while the first copy is being worked on,
// and again when that was given up.
func TestInboxOfTheDocument(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(block(t, "tested: inbox"))
	take := strings.Replace(block(t, "tested: take"), "$1", "'m1'", 1)
	first, second := db.Conn(), db.Conn()
	run := func(sql string) {
		t.Helper()
		must.Get(first.Exec(t.Context(), sql).ReadAll())(t)
	}
	// try takes the message in a transaction of the second's own, and says how many rows that made.
	try := func() <-chan int64 {
		done := make(chan int64, 1)
		go func() {
			results, err := second.Exec(t.Context(), take).ReadAll()
			if err != nil {
				done <- -1
				return
			}
			done <- results[0].CommandTag.RowsAffected()
		}()
		eventually(t, "the second waits for the first", func() bool {
			return db.Value(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "1"
		})
		return done
	}
	for _, end := range []struct {
		with string
		want int64
	}{{"ROLLBACK", 1}, {"COMMIT", 0}} {
		db.Exec(`DELETE FROM inbox`)
		run("BEGIN")
		run(take)
		waiting := try()
		run(end.with)
		if got := <-waiting; got != end.want {
			t.Errorf("after %s of the first, the second inserted %d rows, want %d", end.with, got, end.want)
		}
	}
	if n := db.Exec(take); n != 0 {
		t.Errorf("a copy that came later inserted %d rows, want 0", n)
	}
}

// TestAdoptTheTableOfTheDocument: what was in a table of another kind of relay stays there, what comes is sent.
func TestAdoptTheTableOfTheDocument(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	db := postgrestest.New(t)
	db.Exec(block(t, "tested: debezium"))
	const insert = `INSERT INTO outboxevent VALUES (gen_random_uuid(), $1, 'o-1', 'order.placed', '{"order": 1}')`
	db.Exec(insert, sc.exchange())
	db.Exec(block(t, "tested: adopt"))
	sc.with("OUTBOX_DSN", db.DSN)
	for _, env := range environments(outboxDoc(t)) {
		if env["SIDECAR_OUTBOX_TABLE"] == "outboxevent" {
			maps.Copy(sc.env, env)
		}
	}
	if r := command(t, sc.env, "outbox", "migrate"); r.code != 0 || !strings.Contains(r.stdout, "has what was missing") {
		t.Fatalf("migrate: exit %d: %s", r.code, r.all())
	}
	sc.run()
	db.Exec(insert, sc.exchange())
	eventually(t, "the new row is sent", func() bool { return db.Value(`SELECT count(*) FROM outboxevent WHERE sent_at IS NULL`) == "0" })
	id := db.Value(`SELECT id FROM outboxevent ORDER BY sent_at DESC LIMIT 1`)
	if d := sc.app.await(id, 1)[0]; string(d.Body) != `{"order": 1}` || d.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s came with %v", d.Body, d.Header)
	}
	if sc.app.total() != 1 {
		t.Errorf("%d messages came, want the new one alone", sc.app.total())
	}
}
