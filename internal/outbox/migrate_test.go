package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// open connects to a database as its superuser.
func open(t testing.TB, db *postgrestest.Database) *pgconn.PgConn {
	t.Helper()
	return openAs(t, db.DSN)
}

func openAs(t testing.TB, dsn string) *pgconn.PgConn {
	t.Helper()
	d := Database{DSN: func() (string, error) { return dsn, nil }}
	conn := must.Get(d.Connect(t.Context(), nil))(t)
	t.Cleanup(func() { Close(conn) })
	return conn
}

// migrate makes or adopts the table n, which has to work, and reads it.
func migrate(t testing.TB, db *postgrestest.Database, n Names, notify bool) (*Table, *Migration) {
	t.Helper()
	conn := open(t, db)
	m := must.Get(Migrate(t.Context(), conn, n, notify, silent))(t)
	table := must.Get(readTable(t.Context(), conn, n))(t)
	return table, m
}

// silent is for the statements of a migration.
func silent(string) {}

// planned is what migrate would do, in one line for each statement.
func planned(t testing.TB, db *postgrestest.Database, n Names, notify bool) (inside, outside []string) {
	t.Helper()
	m := must.Get(PlanMigration(t.Context(), open(t, db), n, notify))(t)
	return firstLines(m.Inside), firstLines(m.Outside)
}

func firstLines(statements []string) []string {
	var lines []string
	for _, s := range statements {
		line, _, _ := strings.Cut(s, "\n")
		lines = append(lines, line)
	}
	return lines
}

const insertRow = `INSERT INTO outbox (routing_key, body) VALUES ('key', 'body')`

// TestMigrateNames: whatever the table and its columns are called, everything is made, found again, and belongs to that
// table alone. So it is for a partitioned table that is empty.
func TestMigrateNames(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE SCHEMA "Other"; CREATE TABLE parted (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz) PARTITION BY RANGE (id)`)
	named := map[string]string{"id": "Id", "body": "select", "sent_at": "sent-at", "ordering_key": "O$"}
	long := strings.Repeat("a", 63)
	for _, n := range []Names{
		ParseTable("Other.select", named), ParseTable("Order-Box", nil), ParseTable(long, nil), ParseTable(long[:62]+"b", named),
		ParseTable("Other."+long, nil), ParseTable("parted", nil),
	} {
		if table, _ := migrate(t, db, n, true); table.Check() != nil {
			t.Errorf("%s: %v", &n, table.Check())
		}
		if _, m := migrate(t, db, n, true); !m.Done() {
			t.Errorf("%s, a second time: %+v", &n, m)
		}
	}
	db.Exec(`INSERT INTO "Other"."select" ("routing_key", "select") VALUES ('key', 'body')`)
}

// TestMigrateAdopts: what an app's own table lacks is added; its rows stay, and are due.
func TestMigrateAdopts(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TYPE topic AS ENUM ('key'); CREATE DOMAIN payload AS json;
		CREATE TABLE messages (uid varchar(36) PRIMARY KEY, topic topic NOT NULL, payload payload, aggregate int, sent_at timestamp);
		INSERT INTO messages VALUES ('a', 'key', '{}', 7, NULL), ('b', 'key', '{}', 7, now())`)
	n := ParseTable("messages", map[string]string{"id": "uid", "routing_key": "topic", "body": "payload", "ordering_key": "aggregate"})
	inside, outside := planned(t, db, n, true)
	if len(inside) != 3 || !strings.HasPrefix(inside[0], `ALTER TABLE "public"."messages"`) {
		t.Errorf("in a transaction: %q", inside)
	}
	if len(outside) != 3 || slices.ContainsFunc(outside, func(s string) bool { return !strings.HasPrefix(s, "CREATE INDEX CONCURRENTLY") }) {
		t.Errorf("outside: %q", outside)
	}
	table, _ := migrate(t, db, n, true)
	must.Do(t, table.Check())
	wantValue(t, db, "2", `SELECT count(*) FROM messages WHERE send_after <= now() AND attempts = 0 AND quarantined_at IS NULL`)
	if _, m := migrate(t, db, n, true); !m.Done() {
		t.Errorf("a second time: %+v", m)
	}
}

// TestMigrateFindsIndexes: a table that is made has all columns. An index that does the work is not made twice, one that a build has left unfinished is made
// anew, and one of the name that does something else is the operator's to decide.
func TestMigrateFindsIndexes(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	n := ParseTable("outbox", nil)
	if table, m := migrate(t, db, n, false); !m.Create || m.Table.Schema != "public" || len(m.Outside) != 0 || len(table.Found) != len(columns) {
		t.Errorf("migrated: %+v", m)
	}
	db.Exec(insertRow)
	wantRows(t, db, 1, `message_id IS NOT NULL AND created_at = send_after AND attempts = 0 AND id = 1
		AND sent_at IS NULL AND quarantined_at IS NULL AND last_error IS NULL`)
	db.Exec(`ALTER INDEX outbox_pending RENAME TO mine`)
	if inside, outside := planned(t, db, n, false); len(inside)+len(outside) != 0 {
		t.Errorf("with an index of another name: %q, %q", inside, outside)
	}
	db.Exec(`DROP INDEX mine; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_ordering'::regclass`)
	_, outside := planned(t, db, n, false)
	if want := []string{
		`CREATE INDEX CONCURRENTLY "outbox_pending" ON "public"."outbox" ("send_after", "id")`,
		`DROP INDEX CONCURRENTLY "public"."outbox_ordering"`,
		`CREATE INDEX CONCURRENTLY "outbox_ordering" ON "public"."outbox" ("ordering_key", "id")`,
	}; !slices.Equal(outside, want) {
		t.Errorf("with one dropped and one unfinished: %q", outside)
	}
	migrate(t, db, n, false)
	wantValue(t, db, "4", `SELECT count(*) FROM pg_index WHERE indrelid = 'outbox'::regclass AND indisvalid`)
	db.Exec(`DROP INDEX outbox_pending; CREATE INDEX outbox_pending ON outbox (id)`)
	wantError(t, errOf(PlanMigration(t.Context(), open(t, db), n, false)), "index outbox_pending of table public.outbox is another")
}

// listen returns a function that reports whether an empty notification came on the channel before the one called end.
func listen(t testing.TB, db *postgrestest.Database, channel string) (*pgconn.PgConn, func() bool) {
	t.Helper()
	cfg := must.Get(pgconn.ParseConfig(db.DSN))(t)
	var payloads []string
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { payloads = append(payloads, n.Payload) }
	conn := must.Get(pgconn.ConnectConfig(t.Context(), cfg))(t)
	t.Cleanup(func() { Close(conn) })
	on(t, conn, "LISTEN "+Quote(channel))
	return conn, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for !slices.Contains(payloads, "end") {
			must.Do(t, conn.WaitForNotification(ctx))
		}
		return slices.Contains(payloads, "")
	}
}

// TestMigrateRefuses: what cannot be an outbox is refused by the plan already, and the error says why.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	for name, c := range map[string]struct{ sql, say string }{
		"view":      {`CREATE VIEW %s AS SELECT 1 AS id`, "is a view"},
		"columns":   {`CREATE TABLE %s (id int PRIMARY KEY)`, "no column routing_key, body, sent_at"},
		"no_index":  {`CREATE TABLE %s (id int NOT NULL, routing_key text, body text, sent_at timestamptz)`, "unique index"},
		"null_id":   {`CREATE TABLE %s (id int UNIQUE, routing_key text, body text, sent_at timestamptz)`, "unique index"},
		"two":       {`CREATE TABLE %s (id int, n int, routing_key text, body text, sent_at timestamptz, PRIMARY KEY (id, n))`, "unique index"},
		"body":      {`CREATE TABLE %s (id int PRIMARY KEY, routing_key text, body int, sent_at timestamptz)`, "column body is integer and has to be bytea"},
		"key":       {`CREATE TABLE %s (id int PRIMARY KEY, routing_key int, body text, sent_at timestamptz)`, "column routing_key is integer and has to be text"},
		"blanks":    {`CREATE TABLE %s (id int PRIMARY KEY, routing_key char(9), body text, sent_at timestamptz)`, "column routing_key is character and has to be text"},
		"never":     {`CREATE TABLE %s (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz NOT NULL)`, "column sent_at is NOT NULL"},
		"short":     {`CREATE TABLE %s (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz, last_error varchar(255))`, "column last_error has a length"},
		"generated": {`CREATE TABLE %s (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz, attempts int GENERATED ALWAYS AS (1) STORED)`, "column attempts is generated"},
		"unlogged":  {`CREATE UNLOGGED TABLE %s (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz)`, "not logged"},
		"parts": {`CREATE TABLE %s (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz) PARTITION BY RANGE (id);
			CREATE TABLE parts_1 PARTITION OF %[1]s FOR VALUES FROM (1) TO (100); INSERT INTO %[1]s VALUES (1, 'k', 'b')`, "has partitions with rows"},
		"none.x": {``, "no schema none either"},
	} {
		if c.sql != "" {
			db.Exec(strings.NewReplacer("%s", name, "%[1]s", name).Replace(c.sql))
		}
		m, err := PlanMigration(t.Context(), open(t, db), ParseTable(name, nil), true)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, and the plan is %+v", name, err, m)
		}
		if known := errors.Is(err, errNotOutbox) || errors.Is(err, ErrNoTable); !known && name != "parts" {
			t.Errorf("%s: the error is of no known kind: %v", name, err)
		}
		// The relay refuses the same tables.
		table, err := readTable(t.Context(), open(t, db), ParseTable(name, nil))
		if err == nil {
			err = table.Check()
		}
		if !errors.Is(err, errNotOutbox) && !errors.Is(err, ErrNoTable) && name != "parts" {
			t.Errorf("%s: the relay takes it: %v", name, err)
		}
	}
	db.Exec(`ALTER DATABASE "` + db.Name + `" SET search_path = nowhere`)
	wantError(t, errOf(PlanMigration(t.Context(), open(t, db), ParseTable("outbox", nil), true)), "search_path leads to no schema")
}

// TestMigrateBehindATransaction: a transaction that holds the table keeps migrate waiting, and a session that wants to
// insert waits no longer than one try of it. When it ends, the table is migrated.
func TestMigrateBehindATransaction(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id bigserial PRIMARY KEY, routing_key text, body text, sent_at timestamptz)`)
	holder := open(t, db)
	on(t, holder, "BEGIN; "+insertRow)
	result := make(chan error, 1)
	conn, tries := open(t, db), make(chan string, 100)
	go func() {
		_, err := Migrate(t.Context(), conn, ParseTable("outbox", nil), true, func(sql string) { tries <- sql })
		result <- err
	}()
	for range 2 {
		if sql := <-tries; !strings.HasPrefix(sql, "ALTER TABLE") {
			t.Errorf("the first statement is %s", sql)
		}
	}
	db.Exec(insertRow) // between two tries, or after one
	on(t, holder, "COMMIT")
	must.Do(t, <-result)
	wantRows(t, db, 2, `send_after IS NOT NULL`)
}

// TestMigrateGivesUp: a migration that is cancelled while another process migrates, while a transaction holds the table, or
// between two statements, leaves nothing, and no lock.
func TestMigrateGivesUp(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id bigserial PRIMARY KEY, routing_key text, body text, sent_at timestamptz)`)
	holder := open(t, db)
	cancelled := func(before func(cancel func())) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
		if _, err := Migrate(ctx, open(t, db), ParseTable("outbox", nil), true, func(string) { before(cancel) }); err == nil {
			t.Error("the migration was not given up")
		}
	}
	wait := func(func()) {}
	on(t, holder, "SELECT pg_advisory_lock("+migrateKey+")")
	cancelled(wait)
	on(t, holder, "SELECT pg_advisory_unlock_all(); BEGIN; "+insertRow)
	cancelled(wait)
	on(t, holder, "ROLLBACK")
	cancelled(func(cancel func()) { cancel() })
	brokertest.Eventually(t, time.Minute, "no lock is left", func() bool {
		return db.Value(`SELECT count(*) FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND locktype = 'advisory'`) == "0"
	})
	wantValue(t, db, "0", `SELECT count(*) FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attname = 'send_after'`)
	migrate(t, db, ParseTable("outbox", nil), true)
}
