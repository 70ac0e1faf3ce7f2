package test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// outboxRun runs `sidecar outbox args…` on the database and wants that exit code.
func outboxRun(t *testing.T, dsn string, code int, args ...string) result {
	t.Helper()
	env := valid()
	env["SIDECAR_OUTBOX_DSN"] = dsn
	return outboxWith(t, env, code, args...)
}

func outboxWith(t *testing.T, env map[string]string, code int, args ...string) result {
	t.Helper()
	r := command(t, env, append([]string{"outbox"}, args...)...)
	if r.code != code {
		t.Fatalf("sidecar outbox %q: exit %d, want %d:\n%s", args, r.code, code, r.all())
	}
	if code != 0 && r.stderr == "" {
		t.Errorf("sidecar outbox %q: exit %d without a word", args, code)
	}
	return r
}

// TestOutboxCommands goes the way of an outbox: made, filled, checked, a row released, others deleted. Neither a
// broker nor a sidecar is there.
func TestOutboxCommands(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	stranger := db.Role("secret")
	if r := outboxRun(t, db.DSN, 1, "status"); !strings.Contains(r.stderr, "table outbox: no such table; sidecar outbox migrate makes it") {
		t.Errorf("without a table: %s", r.stderr)
	}
	if r := outboxRun(t, stranger, 0, "migrate", "--print"); !strings.Contains(r.stdout, `CREATE TABLE "public"."outbox"`) {
		t.Errorf("migrate --print: %s", r.all())
	}
	if r := outboxRun(t, stranger, 1, "migrate"); !strings.Contains(r.stderr, "permission denied for schema public") || !strings.Contains(r.stderr, "--print") {
		t.Errorf("migrate without the right: %s", r.stderr)
	}
	if r := outboxRun(t, db.DSN, 0, "migrate"); !strings.Contains(r.stdout, "table public.outbox was made") || !strings.Contains(r.stderr, `CREATE TABLE "public"."outbox"`) {
		t.Errorf("migrate: %s", r.all())
	}
	if r := outboxRun(t, db.DSN, 0, "migrate"); r.all() != "table public.outbox is complete: nothing to do\n" {
		t.Errorf("a second time: %s", r.all())
	}
	db.Exec(`INSERT INTO outbox (routing_key, body, sent_at) SELECT 'k', 'x', now() - interval '8 days' FROM generate_series(1, 20);
		INSERT INTO outbox (routing_key, body, sent_at) VALUES ('k', 'x', now() - interval '25 hours'), ('k', 'x', now());
		INSERT INTO outbox (routing_key, body, send_after) VALUES ('k', 'x', now() + interval '1 hour'), ('k', 'x', now() - interval '90 seconds');
		INSERT INTO outbox (routing_key, body, attempts, last_error, quarantined_at) VALUES ('k', 'x', 10, 'unroutable' || chr(27) || '[31m', now() - interval '3 hours')`)
	checkOutboxStatus(t, db)
	if r := outboxRun(t, db.DSN, 0, "prune"); r.stdout != "20 of 25 rows deleted: sent more than 168h0m0s ago\n" {
		t.Errorf("prune: %s", r.all())
	}
	if r := outboxRun(t, db.DSN, 0, "prune", "--older-than", "24h", "--json"); r.stdout != `{"scanned":5,"deleted":1}`+"\n" {
		t.Errorf("prune --older-than: %s", r.all())
	}
	env := valid()
	env["SIDECAR_OUTBOX_DSN"], env["SIDECAR_OUTBOX_RETENTION"] = db.DSN, "1h"
	if r := outboxWith(t, env, 0, "prune"); r.stdout != "0 of 4 rows deleted: sent more than 1h0m0s ago\n" {
		t.Errorf("prune by the configured age: %s", r.all())
	}
	if r := outboxRun(t, db.DSN, 1, "retry", "25", "22"); r.stdout != "1 row released\n" || !strings.Contains(r.stderr, "not in quarantine: 22") {
		t.Errorf("retry: %s", r.all())
	}
	if v := db.Value(`SELECT count(*) FROM outbox WHERE sent_at IS NULL AND quarantined_at IS NULL AND send_after <= now()`); v != "2" {
		t.Errorf("%s rows are due", v)
	}
	db.Exec(`UPDATE outbox SET quarantined_at = now() WHERE sent_at IS NULL`)
	if r := outboxRun(t, db.DSN, 0, "retry", "--json", "--all"); r.stdout != `{"released":3,"missing":[]}`+"\n" {
		t.Errorf("retry --all: %s", r.all())
	}
}

// checkOutboxStatus reads the status of TestOutboxCommands: of the superuser, whose DSN is in a file, and of a role that
// may see no row.
func checkOutboxStatus(t *testing.T, db *postgrestest.Database) {
	t.Helper()
	env := valid()
	env["SIDECAR_OUTBOX_DSN_FILE"] = filepath.Join(t.TempDir(), "dsn")
	must.Do(t, os.WriteFile(env["SIDECAR_OUTBOX_DSN_FILE"], []byte(db.DSN+"\n"), 0o600))
	r := outboxWith(t, env, 0, "status")
	for _, want := range []string{
		"table        public.outbox\n", "pending      2, 1 of them due later, 0 failed before\n", "lag          1m3", "quarantined  1\n",
		"inserts notify an idle relay", "25               ", `unroutable\x1b[31m`, "3h ago",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("status does not say %q:\n%s", want, r.stdout)
		}
	}
	db.Exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	if r := outboxRun(t, db.Role("secret", `GRANT SELECT ON outbox TO %s`), 0, "status"); !strings.Contains(r.stdout, "pending      0,") || !strings.Contains(r.stdout, "policies     row level security may hide rows") {
		t.Errorf("status by a role that sees no row: %s", r.stdout)
	}
	db.Exec(`ALTER TABLE outbox DISABLE ROW LEVEL SECURITY`)
	var status struct {
		Pending, Quarantined int
		Lag                  float64 `json:"lag_seconds"`
		Rows                 []struct {
			ID string `json:"id"`
		} `json:"quarantined_rows"`
	}
	if err := json.Unmarshal([]byte(outboxRun(t, db.DSN, 0, "status", "--json").stdout), &status); err != nil || status.Pending != 2 ||
		status.Quarantined != 1 || status.Lag < 90 || len(status.Rows) != 1 || status.Rows[0].ID != "25" {
		t.Errorf("status --json: %+v, %v", status, err)
	}
}

// TestOutboxTableOfTheDocument: the table that docs/outbox.md shows is the one that migrate makes, but for the trigger.
func TestOutboxTableOfTheDocument(t *testing.T) {
	t.Parallel()
	const columns = `SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid)
		FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 'outbox'::regclass AND attnum > 0 ORDER BY attnum`
	shown, made := postgrestest.New(t), postgrestest.New(t)
	shown.Exec(block(t, "tested: table"))
	outboxRun(t, made.DSN, 0, "migrate")
	if a, b := shown.Query(columns), made.Query(columns); !slices.EqualFunc(a, b, slices.Equal) {
		t.Errorf("the columns of the document are %v, those that migrate makes %v", a, b)
	}
	if r := outboxRun(t, shown.DSN, 0, "migrate", "--no-notify"); !strings.Contains(r.stdout, "nothing to do") {
		t.Errorf("the document lacks something: %s", r.all())
	}
}

// TestOutboxUsage: what is wrong with the command line or the configuration is exit 64, what is wrong with the database
// 1. The password of the DSN is shown by none.
func TestOutboxUsage(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry-pass"
	db := postgrestest.New(t)
	outboxRun(t, db.DSN, 0, "migrate")
	db.Exec(`CREATE VIEW v AS SELECT * FROM outbox`)
	for _, c := range []struct {
		args []string
		say  string
	}{
		{nil, "a command is missing"}, {[]string{"vacuum"}, "there are migrate, status, prune, retry"}, {[]string{"migrate", "--notify"}, "no flag --notify"},
		{[]string{"status", "x"}, `unexpected argument "x"`}, {[]string{"prune", "--older-than", "7"}, "want a duration such as"},
		{[]string{"prune", "--older-than", "0s"}, "want a duration"}, {[]string{"retry"}, "want the ids of rows, or --all"}, {[]string{"retry", "--all", "1"}, "want the ids"},
		{[]string{"retry", "seven"}, `not an id of the table: invalid input syntax for type bigint: "seven"`},
	} {
		if r := outboxRun(t, db.DSN, 64, c.args...); !strings.Contains(r.stderr, c.say) {
			t.Errorf("%q: %s", c.args, r.stderr)
		}
	}
	refused, err := url.Parse(db.DSN)
	must.Do(t, err)
	refused.User, refused.Host = url.UserPassword("postgres", canary), "127.0.0.1:1"
	for _, c := range []struct {
		name, value, say string
		code             int
	}{
		{"SIDECAR_OUTBOX_DSN", "", "SIDECAR_OUTBOX_DSN is not set", 64}, {"SIDECAR_OUTBOX_TABLE", "x; drop table", "SIDECAR_OUTBOX_TABLE", 64},
		{"SIDECAR_OUTBOX_DSN", "postgres://postgres:" + canary + "@127.0.0.1/x?sslmode=maybe", "SIDECAR_OUTBOX_DSN", 64},
		{"SIDECAR_OUTBOX_DSN", refused.String(), "connect to the database", 1}, {"SIDECAR_OUTBOX_TABLE", "v", "sidecar: outbox ", 1},
	} {
		env := valid()
		env["SIDECAR_OUTBOX_DSN"] = db.DSN
		env[c.name] = c.value
		for _, call := range []string{"migrate", "status", "prune", "retry --all"} {
			if r := outboxWith(t, env, c.code, strings.Fields(call)...); !strings.Contains(r.stderr, c.say) || strings.Contains(r.all(), canary) {
				t.Errorf("%s=%s: %s: %s", c.name, c.value, call, r.all())
			}
		}
	}
}

// TestOutboxInterrupted: a signal ends a command that waits, here for another's index, with exit 1 and a word.
func TestOutboxInterrupted(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id bigserial PRIMARY KEY, routing_key text, body text, sent_at timestamptz); INSERT INTO outbox (routing_key, body) VALUES ('k', 'x')`)
	// An index that is built concurrently waits for every transaction that is older.
	old := db.Conn()
	must.Get(old.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`).ReadAll())(t)
	env := valid()
	env["SIDECAR_OUTBOX_DSN"] = db.DSN
	s := launch(t, env, "outbox", "migrate")
	eventually(t, "the index is being built", func() bool {
		return db.Value(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'virtualxid'`) == "1"
	})
	db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'meanwhile')`)
	s.signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 1 || !strings.Contains(s.log.String(), "stopped by a signal") {
		t.Errorf("exit %d: %s", code, s.log.String())
	}
	eventually(t, "no session builds it any more", func() bool {
		return db.Value(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'virtualxid'`) == "0"
	})
	must.Get(old.Exec(t.Context(), `COMMIT`).ReadAll())(t)
	outboxRun(t, db.DSN, 0, "migrate")
	if v := db.Value(`SELECT string_agg(indexrelid::regclass || ' ' || indisvalid, ', ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = 'outbox'::regclass`); v !=
		"outbox_pending true, outbox_pkey true, outbox_quarantined true" {
		t.Errorf("the indexes are %s", v)
	}
}
