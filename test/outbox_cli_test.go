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

// outboxSays runs a command and wants each text in what it prints, or in why it fails.
func outboxSays(t *testing.T, dsn string, code int, args string, texts ...string) {
	t.Helper()
	r := outboxRun(t, dsn, code, strings.Fields(args)...)
	for _, text := range texts {
		if said := map[bool]string{true: r.stdout, false: r.stderr}[code == 0]; !strings.Contains(said, text) {
			t.Errorf("sidecar outbox %s does not say %q: %s", args, text, r.all())
		}
	}
}

// TestOutboxCommands goes the way of an outbox: made, filled, checked, a row released, others deleted. Neither a
// broker nor a sidecar is there.
func TestOutboxCommands(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	stranger := db.Role("secret")
	outboxSays(t, db.DSN, 1, "status", "table outbox: no such table; sidecar outbox migrate makes it")
	outboxSays(t, stranger, 0, "migrate --print", `CREATE TABLE "public"."outbox"`)
	outboxSays(t, stranger, 1, "migrate", "permission denied for schema public", "--print")
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
	outboxSays(t, db.DSN, 0, "prune", "20 of 25 rows deleted: sent more than 168h0m0s ago\n")
	outboxSays(t, db.DSN, 0, "prune --older-than 24h --json", `{"scanned":5,"deleted":1}`+"\n")
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
	outboxSays(t, db.DSN, 0, "retry --json --all", `{"released":3,"missing":[]}`+"\n")
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
	reader := db.Role("secret", `GRANT SELECT ON outbox TO %s`)
	outboxSays(t, reader, 0, "status", "pending      0,", "policies     row level security may hide rows")
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
	outboxSays(t, shown.DSN, 0, "migrate --no-notify", "nothing to do") // the document lacks nothing
}

// TestOutboxUsage: what is wrong with the command line or the configuration is exit 64, what is wrong with the database
// 1. The password of the DSN is shown by none.
func TestOutboxUsage(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry-pass"
	db := postgrestest.New(t)
	outboxRun(t, db.DSN, 0, "migrate")
	db.Exec(`CREATE VIEW v AS SELECT * FROM outbox`)
	for args, say := range map[string]string{
		"": "a command is missing", "vacuum": "there are migrate, status, prune, retry", "migrate --notify": "no flag --notify",
		"status x": `unexpected argument "x"`, "prune --older-than 7": "want a duration such as",
		"prune --older-than 0s": "want a duration", "retry": "want the ids of rows, or --all", "retry --all 1": "want the ids",
		"retry seven": `not an id of the table: invalid input syntax for type bigint: "seven"`,
	} {
		outboxSays(t, db.DSN, 64, args, say)
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
