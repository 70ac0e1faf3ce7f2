package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// filled is an outbox with n rows that were sent two hours ago, three of each thousand of which are something else: 1
// is pending, 2 in quarantine, 3 sent now.
func filled(t *testing.T, n int) (*postgrestest.Database, *Table) {
	t.Helper()
	db := postgrestest.New(t)
	table, _ := migrate(t, db, ParseTable("outbox", nil), true)
	db.Exec(fmt.Sprintf(`INSERT INTO outbox (routing_key, body, sent_at, attempts, last_error, quarantined_at)
		SELECT 'key', 'body', CASE WHEN i %% 1000 IN (1, 2) THEN NULL WHEN i %% 1000 = 3 THEN now() ELSE now() - interval '2 hours' END,
			CASE i %% 1000 WHEN 2 THEN 10 ELSE 0 END, CASE i %% 1000 WHEN 2 THEN 'unroutable ' || i END,
			CASE i %% 1000 WHEN 2 THEN now() - interval '1 day' END
		FROM generate_series(1, %d) i`, n))
	return db, table
}

// TestPrune deletes what was sent longer ago, and nothing else, however many rows it has to walk past.
func TestPrune(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 3000)
	var seen []Pruned
	prune := func(before time.Duration, want Pruned) {
		t.Helper()
		done, err := Prune(t.Context(), open(t, db), table, before, func(p Pruned) error { seen = append(seen, p); return nil })
		if err != nil || done != want {
			t.Errorf("pruned: %+v, %v", done, err)
		}
	}
	prune(time.Hour, Pruned{Scanned: 3000, Deleted: 2991})
	if len(seen) != 4 || seen[0] != (Pruned{Scanned: 1000, Deleted: 997}) {
		t.Errorf("the steps: %+v", seen)
	}
	wantValue(t, db, "1 2 3 1001 1002 1003 2001 2002 2003", `SELECT string_agg(id::text, ' ' ORDER BY id) FROM outbox`)
	prune(time.Hour, Pruned{Scanned: 9})
	prune(0, Pruned{Scanned: 9, Deleted: 3})
}

// TestPruneLeavesWhatIsLocked: rows that another process holds are neither waited for nor deleted; a walk can be ended
// between two steps, and the error of the table is reported.
func TestPruneLeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 2500)
	holder := open(t, db)
	on(t, holder, "BEGIN; SELECT FROM outbox WHERE id = 5 FOR UPDATE")
	stop := errors.New("stop")
	done, err := Prune(t.Context(), open(t, db), table, time.Hour, func(Pruned) error { return stop })
	if !errors.Is(err, stop) || done != (Pruned{Scanned: 1000, Deleted: 996}) {
		t.Errorf("pruned: %+v, %v", done, err)
	}
	on(t, holder, "COMMIT")
	wantRows(t, db, 1, `id = 5`)
	db.Exec(`DROP TABLE outbox`)
	wantError(t, errOf(Prune(t.Context(), open(t, db), table, time.Hour, nil)), "delete rows of table")
}

// TestPruneTextIDs walks by whatever the ids are.
func TestPruneTextIDs(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id text PRIMARY KEY, routing_key text, body text, sent_at timestamp);
		INSERT INTO outbox SELECT 'it''s ' || i, 'key', 'body', now() - interval '2 hours' FROM generate_series(1, 2500) i`)
	table, _ := migrate(t, db, ParseTable("outbox", nil), false)
	if done, err := Prune(t.Context(), open(t, db), table, time.Hour, nil); err != nil || done.Deleted != 2500 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestRetry releases the rows that were asked for, says which are not there, and notifies the relays.
func TestRetry(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 4000)
	_, heard := listen(t, db, table.Channel())
	conn := open(t, db)
	done, err := Retry(t.Context(), conn, table, []string{"2", "0002", "1002", "1", "3", "99999"})
	if err != nil || done.Released != 2 || !slices.Equal(done.Missing, []string{"1", "3", "99999"}) {
		t.Errorf("released: %+v, %v", done, err)
	}
	wantRows(t, db, 2, `id IN (2, 1002) AND quarantined_at IS NULL AND attempts = 0 AND send_after <= now() AND last_error LIKE 'unroutable %'`)
	wantRows(t, db, 2, `quarantined_at IS NOT NULL`)
	db.Exec(`SELECT pg_notify('` + table.Channel() + `', 'end')`)
	if !heard() {
		t.Error("no listener was notified")
	}
	for _, bad := range []string{"seven", "", `7"`, "9223372036854775808"} {
		if _, err := Retry(t.Context(), conn, table, []string{"2002", bad}); !errors.Is(err, ErrID) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRetryAll releases more than one statement takes, and not what is put into quarantine again meanwhile.
func TestRetryAll(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 3)
	db.Exec(`INSERT INTO outbox (routing_key, body, attempts, quarantined_at) SELECT 'key', 'body', 10, now() FROM generate_series(1, 2500);
		INSERT INTO outbox (routing_key, body, attempts, quarantined_at) VALUES ('key', 'later', 10, now() + interval '1 hour')`)
	if done, err := RetryAll(t.Context(), open(t, db), table); err != nil || done.Released != 2501 {
		t.Errorf("released: %+v, %v", done, err)
	}
	wantValue(t, db, "later", `SELECT convert_from(body, 'UTF8') FROM outbox WHERE quarantined_at IS NOT NULL`)
}

// TestStatus counts what there is, and says what migrate would do.
func TestStatus(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 15000)
	// A row without a send_after is due since it was made.
	db.Exec(`ALTER TABLE outbox ALTER send_after DROP NOT NULL;
		UPDATE outbox SET send_after = now() + interval '1 hour', created_at = now() - interval '1 day', attempts = 1 WHERE id IN (1, 1001);
		UPDATE outbox SET send_after = NULL, created_at = now() - interval '90 seconds' WHERE id = 2001; DROP INDEX outbox_pending; DROP TRIGGER outbox_notify ON outbox`)
	conn := open(t, db)
	s := must.Get(ReadStatus(t.Context(), conn, table.Names))(t)
	if s.Table != "public.outbox" || s.Pending != 15 || s.Waiting != 2 || s.Failing != 2 || s.Quarantined != 15 || s.Lag < 90 || s.Lag > 3600 {
		t.Errorf("the status is %+v", s)
	}
	if s.Notify || len(s.Missing) != 1 && !strings.Contains(strings.Join(s.Missing, ""), "outbox_pending") {
		t.Errorf("notify %v, missing: %q", s.Notify, s.Missing)
	}
	if len(s.Rows) != 10 || s.Rows[1].ID != "1002" || s.Rows[1].Attempts != 10 || s.Rows[1].Error != "unroutable 1002" || time.Since(s.Rows[1].Since) < 20*time.Hour {
		t.Errorf("in quarantine: %+v", s.Rows)
	}
	db.Exec(`TRUNCATE outbox`)
	migrate(t, db, table.Names, true)
	s = must.Get(ReadStatus(t.Context(), conn, table.Names))(t)
	b, err := json.Marshal(s)
	const want = `{"table":"public.outbox","pending":0,"waiting":0,"failing":0,"lag_seconds":0,"quarantined":0,"notify":true,"row_security":false,"missing":[],"quarantined_rows":[]}`
	if err != nil || string(b) != want {
		t.Errorf("an empty table: %s, %v", b, err)
	}
	db.Exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; DROP INDEX outbox_pending; CREATE INDEX outbox_pending ON outbox (id)`)
	s, err = ReadStatus(t.Context(), openAs(t, db.Role("secret", `GRANT SELECT ON outbox TO %s`)), table.Names)
	if err != nil || !s.Hidden || len(s.Missing) != 1 || !strings.Contains(s.Missing[0], "is another than migrate would make") {
		t.Errorf("with policies and an index of the name: %+v, %v", s, err)
	}
	if _, err := ReadStatus(t.Context(), conn, ParseTable("nowhere", nil)); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	db.Exec(`ALTER TABLE outbox DROP COLUMN attempts`)
	if _, err := ReadStatus(t.Context(), conn, table.Names); !errors.Is(err, errNotOutbox) || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("not migrated: %v", err)
	}
}

// TestLeastRights: each thing is done by a role that has exactly the rights that the documentation names, and refused
// to one that lacks them.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 2500)
	const mark = `GRANT SELECT, UPDATE (sent_at, send_after, attempts, last_error, quarantined_at) ON outbox TO %s`
	stranger, relay := openAs(t, db.Role("secret")), openAs(t, db.Role("secret", mark))
	pruner, reader := openAs(t, db.Role("secret", mark, `GRANT DELETE ON outbox TO %s`)), openAs(t, db.Role("secret", `GRANT SELECT ON outbox TO %s`))
	ctx := t.Context()
	denied := func(what string, err error) {
		t.Helper()
		if !isCode(err, "42501") || !strings.Contains(err.Error(), "as the owner of the table") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Planning reads the catalogue alone.
	db.Exec(`DROP INDEX outbox_pending`)
	if m, err := PlanMigration(ctx, stranger, table.Names, true); err != nil || len(m.Outside) != 1 {
		t.Errorf("a plan without rights: %+v, %v", m, err)
	}
	denied("migrate", errOf(Migrate(ctx, relay, table.Names, true, silent)))
	denied("status", errOf(ReadStatus(ctx, stranger, table.Names)))
	if s, err := ReadStatus(ctx, reader, table.Names); err != nil || s.Quarantined != 3 {
		t.Errorf("status by one who may select: %+v, %v", s, err)
	}
	denied("retry", errOf(Retry(ctx, reader, table, []string{"2"})))
	denied("retry --all", errOf(RetryAll(ctx, reader, table)))
	if done, err := Retry(ctx, relay, table, []string{"2"}); err != nil || done.Released != 1 {
		t.Errorf("retry by the relay's role: %+v, %v", done, err)
	}
	if done, err := RetryAll(ctx, relay, table); err != nil || done.Released != 2 {
		t.Errorf("retry --all by the relay's role: %+v, %v", done, err)
	}
	err := errOf(Prune(ctx, relay, table, time.Hour, nil))
	if denied("prune", err); !strings.Contains(err.Error(), "GRANT DELETE") {
		t.Error(err)
	}
	if done, err := Prune(ctx, pruner, table, time.Hour, nil); err != nil || done.Deleted == 0 {
		t.Errorf("prune by one who may delete: %+v, %v", done, err)
	}
	if err := exec(ctx, relay, `UPDATE outbox SET body = ''`); !isCode(err, "42501") {
		t.Errorf("the relay's role may change bodies: %v", err)
	}
	// A schema that a role may not use.
	db.Exec(`CREATE SCHEMA hidden; CREATE TABLE hidden.outbox (id int)`)
	denied("a hidden schema", errOf(PlanMigration(ctx, stranger, ParseTable("hidden.outbox", nil), true)))
}

// TestPrint: what is printed for a table that is not there makes one to which nothing is missing.
func TestPrint(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	n := ParseTable("Out-Box", nil)
	printed := func() string {
		m := must.Get(PlanMigration(t.Context(), open(t, db), n, true))(t)
		var b bytes.Buffer
		must.Do(t, m.Print(&b))
		return b.String()
	}
	sql := printed()
	if !strings.Contains(sql, `GRANT SELECT, UPDATE ("sent_at", "send_after", "attempts", "last_error", "quarantined_at") ON "public"."Out-Box" TO`) {
		t.Errorf("the rights of the relay are not there:\n%s", sql)
	}
	db.Exec(sql)
	if sql := printed(); !strings.HasPrefix(sql, "-- Nothing to do: public.Out-Box is complete.\n") {
		t.Errorf("after it was run:\n%s", sql)
	}
	db.Exec(`INSERT INTO "Out-Box" (routing_key, body) VALUES ('key', 'body'); DROP INDEX "Out-Box_pending"`)
	if sql := printed(); !strings.Contains(sql, "\nCREATE INDEX CONCURRENTLY \"Out-Box_pending\"") || strings.Contains(sql, "BEGIN") {
		t.Errorf("what is for outside a transaction:\n%s", sql)
	}
}

// TestRetention: a relay deletes what was sent longer ago, and nothing else, while it publishes.
func TestRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, sent_at, quarantined_at) SELECT 'key', 'old', now() - interval '2 hours', NULL FROM generate_series(1, 2500);
		INSERT INTO outbox (routing_key, body, created_at, send_after) VALUES ('key', 'pending', now() - interval '3 hours', now() - interval '3 hours');
		INSERT INTO outbox (routing_key, body, created_at, quarantined_at) VALUES ('key', 'quarantined', now() - interval '3 hours', now() - interval '2 hours')`)
	_, stop := r.start(func(o *Options) { o.Retention = time.Second })
	r.eventually("old rows are deleted", func() bool { return r.rows(`body = 'old'`) == "0" })
	r.settled()
	if got := r.bodies(); got["pending"] != 1 || got["old"] != 0 {
		t.Errorf("published: %v", got)
	}
	wantRows(t, r.db, 1, `body = 'quarantined'`)
	r.eventually("the row that was sent just now is deleted later", func() bool { return r.rows(`true`) == "1" })
	stop()
	if !strings.Contains(r.log.String(), `"msg":"sent rows deleted","table":"outbox","rows":2500`) {
		t.Errorf("the log: %s", r.log)
	}
}

// TestRetentionOfOne: one relay deletes at a time, a run ends with the relay, and an obstacle is reported.
func TestRetentionOfOne(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 2500)
	retain := func(ctx context.Context, dsn string) (Pruned, error) {
		return New(Options{
			Database: Database{DSN: func() (string, error) { return dsn, nil }}, Names: table.Names, Retention: time.Hour,
			Logger: slog.New(slog.DiscardHandler),
		}).retainOnce(ctx)
	}
	other := open(t, db)
	must.Get(query(t.Context(), other, retainLock, number(retainKey<<32|int64(table.OID))))(t)
	if done, err := retain(t.Context(), db.DSN); err != nil || done != (Pruned{}) {
		t.Errorf("while another walks: %+v, %v", done, err)
	}
	Close(other)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := retain(ended, db.DSN); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := retain(t.Context(), db.Role("secret", `GRANT SELECT, UPDATE ON outbox TO %s`)); !isCode(err, "42501") {
		t.Errorf("without the right to delete: %v", err)
	}
	var done Pruned
	brokertest.Eventually(t, time.Minute, "the server has released the lock of a connection that was closed", func() bool {
		done = must.Get(retain(t.Context(), db.DSN))(t)
		return done != Pruned{}
	})
	if done.Deleted != 2491 {
		t.Errorf("pruned: %+v", done)
	}
	db.Exec(`DROP TABLE outbox`)
	if _, err := retain(t.Context(), db.DSN); !errors.Is(err, ErrNoTable) {
		t.Errorf("without a table: %v", err)
	}
	wantError(t, errOf(retain(t.Context(), "postgres://127.0.0.1:1/")), "connect to the database")
}
