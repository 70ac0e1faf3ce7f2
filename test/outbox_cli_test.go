package test

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/postgrestest"
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
	if r := outboxRun(t, db.DSN, 1, "status"); !strings.Contains(r.stderr, "table outbox: no such table; sidecar outbox migrate makes it") {
		t.Errorf("without a table: %s", r.stderr)
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
	r := outboxRun(t, db.DSN, 0, "status")
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
	if r := outboxRun(t, db.DSN, 0, "prune"); r.stdout != "20 of 25 rows deleted: sent more than 168h0m0s ago\n" {
		t.Errorf("prune: %s", r.all())
	}
	if r := outboxRun(t, db.DSN, 0, "prune", "--older-than", "24h", "--json"); r.stdout != `{"scanned":5,"deleted":1}`+"\n" {
		t.Errorf("prune --older-than: %s", r.all())
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

// TestOutboxNames: table and columns of the app's own, in a schema of its own; the index is built while rows are there.
// The age of rows to delete is the configured one.
func TestOutboxNames(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE SCHEMA shop; CREATE TABLE shop.messages (uid uuid PRIMARY KEY, topic text, payload jsonb, sent_at timestamptz);
		INSERT INTO shop.messages VALUES (gen_random_uuid(), 'k', '{}', now() - interval '2 hours')`)
	env := valid()
	maps.Copy(env, map[string]string{
		"SIDECAR_OUTBOX_DSN": db.DSN, "SIDECAR_OUTBOX_TABLE": "shop.messages", "SIDECAR_OUTBOX_COLUMNS": "id=uid,routing_key=topic,body=payload",
		"SIDECAR_OUTBOX_RETENTION": "1h",
	})
	if r := outboxWith(t, env, 1, "status"); !strings.Contains(r.stderr, "no column send_after, attempts, last_error, quarantined_at; 'sidecar outbox migrate' adds") {
		t.Errorf("status before: %s", r.stderr)
	}
	r := outboxWith(t, env, 0, "migrate", "--no-notify")
	if !strings.Contains(r.stdout, "table shop.messages has what was missing: 3 statements") || !strings.Contains(r.stderr, `CREATE INDEX CONCURRENTLY "messages_pending" ON "shop"."messages" ("send_after", "uid")`) {
		t.Errorf("migrate: %s", r.all())
	}
	if r := outboxWith(t, env, 0, "status"); !strings.Contains(r.stdout, "notify       off: the relay checks every 1s") {
		t.Errorf("status: %s", r.stdout)
	}
	if r := outboxWith(t, env, 0, "prune"); r.stdout != "1 of 1 row deleted: sent more than 1h0m0s ago\n" {
		t.Errorf("prune: %s", r.stdout)
	}
}

// TestOutboxPrint: what is printed changes nothing, needs no right, and does the work when psql runs it.
func TestOutboxPrint(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, routing_key text, body text, sent_at timestamptz); INSERT INTO outbox VALUES (1, 'k', 'x')`)
	stranger := db.Role("secret")
	sql := outboxRun(t, stranger, 0, "migrate", "--print").stdout
	if again := outboxRun(t, stranger, 0, "migrate", "--print").stdout; again != sql {
		t.Errorf("something was changed:\n%s", again)
	}
	if r := outboxRun(t, stranger, 1, "migrate"); !strings.Contains(r.stderr, "must be owner of table outbox") || !strings.Contains(r.stderr, "--print") {
		t.Errorf("migrate without the right: %s", r.stderr)
	}
	bin, err := os.ReadFile(filepath.Join(os.Getenv("POSTGRES_DIR"), "bin"))
	if err != nil {
		t.Fatalf("POSTGRES_DIR does not say where psql is: %v", err)
	}
	psql := exec.Command(filepath.Join(strings.TrimSpace(string(bin)), "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", db.DSN)
	psql.Stdin = strings.NewReader(sql)
	if out, err := psql.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	if r := outboxRun(t, db.DSN, 0, "migrate"); !strings.Contains(r.stdout, "nothing to do") {
		t.Errorf("after the SQL was run: %s", r.all())
	}
}

// TestOutboxTableOfTheDocument: the table that docs/outbox.md shows is the one that migrate makes, but for the trigger.
func TestOutboxTableOfTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "<!-- tested: table -->\n```sql\n")
	sql, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/outbox.md shows no table")
	}
	const columns = `SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid)
		FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 'outbox'::regclass AND attnum > 0 ORDER BY attnum`
	shown, made := postgrestest.New(t), postgrestest.New(t)
	shown.Exec(sql)
	outboxRun(t, made.DSN, 0, "migrate")
	if a, b := shown.Query(columns), made.Query(columns); !slices.EqualFunc(a, b, slices.Equal) {
		t.Errorf("the columns of the document are %v, those that migrate makes %v", a, b)
	}
	if r := outboxRun(t, shown.DSN, 0, "migrate", "--no-notify"); !strings.Contains(r.stdout, "nothing to do") {
		t.Errorf("the document lacks something: %s", r.all())
	}
}

// TestOutboxUsage: what is wrong with the command line or the configuration is exit 64, what is wrong with the database
// 1.
func TestOutboxUsage(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	for _, c := range []struct {
		args []string
		say  string
	}{
		{nil, "a command is missing"}, {[]string{"vacuum"}, "there are migrate, status, prune, retry"}, {[]string{"migrate", "--notify"}, "no flag --notify"},
		{[]string{"migrate", "x"}, `unexpected argument "x"`}, {[]string{"status", "x"}, `unexpected argument "x"`}, {[]string{"prune", "7"}, `unexpected argument "7"`},
		{[]string{"prune", "--older-than", "7"}, "want a duration such as"}, {[]string{"prune", "--older-than", "-1h"}, "want a duration"},
		{[]string{"prune", "--older-than", "0s"}, "want a duration"}, {[]string{"retry"}, "want the ids of rows, or --all"}, {[]string{"retry", "--all", "1"}, "want the ids"},
	} {
		if r := outboxRun(t, db.DSN, 64, c.args...); !strings.Contains(r.stderr, c.say) {
			t.Errorf("%q: %s", c.args, r.stderr)
		}
	}
	for _, help := range [][]string{{"--help"}, {"help"}, {"migrate", "--help"}, {"status", "-h"}, {"prune", "--help"}, {"retry", "--help"}} {
		if r := outboxWith(t, nil, 0, help...); !strings.Contains(r.stdout, "usage: sidecar outbox") {
			t.Errorf("%q: %s", help, r.all())
		}
	}
	for change, say := range map[string]string{
		"SIDECAR_OUTBOX_DSN=": "SIDECAR_OUTBOX_DSN is not set", "SIDECAR_SERVICE=": "SIDECAR_SERVICE", "SIDECAR_OUTBOX_TABLE=x; drop table": "SIDECAR_OUTBOX_TABLE",
		"SIDECAR_OUTBOX_COLUMNS=where=when": "SIDECAR_OUTBOX_COLUMNS", "SIDECAR_OUTBOX_DSN=mysql://hunter2@x/": "SIDECAR_OUTBOX_DSN",
	} {
		env := valid()
		env["SIDECAR_OUTBOX_DSN"] = db.DSN
		name, value, _ := strings.Cut(change, "=")
		if env[name] = value; value == "" {
			delete(env, name)
		}
		for _, c := range outboxCalls {
			if r := outboxWith(t, env, 64, c...); !strings.Contains(r.stderr, say) || strings.Contains(r.all(), "hunter2") {
				t.Errorf("%s: %q: %s", change, c, r.all())
			}
		}
	}
	outboxRun(t, db.DSN, 0, "migrate")
	if r := outboxRun(t, db.DSN, 64, "retry", "seven"); !strings.Contains(r.stderr, `not an id of the table: invalid input syntax for type bigint: "seven"`) {
		t.Errorf("retry of what is no id: %s", r.stderr)
	}
	db.Exec(`CREATE VIEW v AS SELECT * FROM outbox`)
	env := valid()
	env["SIDECAR_OUTBOX_DSN"], env["SIDECAR_OUTBOX_TABLE"] = db.DSN, "v"
	for _, c := range outboxCalls {
		if r := outboxWith(t, env, 1, c...); !strings.Contains(r.stderr, "sidecar: outbox "+c[0]+": ") {
			t.Errorf("%q on a view: %s", c, r.stderr)
		}
	}
}

// outboxCalls are all commands, with words that are right.
var outboxCalls = [][]string{{"migrate"}, {"migrate", "--print"}, {"status"}, {"status", "--json"}, {"prune"}, {"retry", "--all"}, {"retry", "1"}}

// TestOutboxSecrets: the password of the DSN is in no word of any command, whatever is wrong with the DSN or the
// server.
func TestOutboxSecrets(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry-pass"
	db := postgrestest.New(t)
	outboxRun(t, db.DSN, 0, "migrate")
	as := func(change func(u *url.URL)) string {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct {
		dsn  string
		code int
	}{
		"no rights":     {db.Role(canary), 1},
		"no such role":  {as(func(u *url.URL) { u.User = url.UserPassword("absent", canary) }), 1},
		"no server":     {as(func(u *url.URL) { u.User, u.Host = url.UserPassword("postgres", canary), "127.0.0.1:1" }), 1},
		"no database":   {as(func(u *url.URL) { u.User, u.Path = url.UserPassword("postgres", canary), "/nowhere" }), 1},
		"TLS, not here": {as(func(u *url.URL) { u.User, u.RawQuery = url.UserPassword("postgres", canary), "sslmode=verify-full" }), 1},
		"bad sslmode":   {"postgres://postgres:" + canary + "@127.0.0.1/x?sslmode=maybe", 64},
		"bad port":      {"postgres://postgres:" + canary + "@127.0.0.1:x/x", 64},
		"bad escape":    {"postgres://postgres:" + canary + "%zz@127.0.0.1/x", 64},
		"bad host":      {"postgres://postgres:" + canary + "/x@127.0.0.1/x", 64},
		"bad keyword":   {"host=127.0.0.1 password='" + canary, 64},
	} {
		for _, call := range outboxCalls {
			// Nothing is missing: migrate needs no rights.
			env := valid()
			env["SIDECAR_OUTBOX_DSN"] = c.dsn
			r := command(t, env, append([]string{"outbox"}, call...)...)
			if allowed := name == "no rights" && call[0] == "migrate"; r.code != c.code && !allowed {
				t.Errorf("%s: %q: exit %d, want %d: %s", name, call, r.code, c.code, r.all())
			}
			if strings.Contains(r.all(), canary) {
				t.Errorf("%s: %q shows the password: %s", name, call, r.all())
			}
		}
	}
}

// TestOutboxSecretFile: the DSN may come from a file.
func TestOutboxSecretFile(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	env := valid()
	env["SIDECAR_OUTBOX_DSN_FILE"] = filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(env["SIDECAR_OUTBOX_DSN_FILE"], []byte(db.DSN+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	outboxWith(t, env, 0, "migrate")
	outboxWith(t, env, 0, "status")
}

// TestOutboxInterrupted: a signal ends a command that waits, here for another's index, with exit 1 and a word.
func TestOutboxInterrupted(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(`CREATE TABLE outbox (id bigserial PRIMARY KEY, routing_key text, body text, sent_at timestamptz); INSERT INTO outbox (routing_key, body) VALUES ('k', 'x')`)
	// An index that is built concurrently waits for every transaction that is older.
	old := db.Conn()
	if _, err := old.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`).ReadAll(); err != nil {
		t.Fatal(err)
	}
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
	if _, err := old.Exec(t.Context(), `COMMIT`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	outboxRun(t, db.DSN, 0, "migrate")
	if v := db.Value(`SELECT string_agg(indexrelid::regclass || ' ' || indisvalid, ', ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = 'outbox'::regclass`); v !=
		"outbox_pending true, outbox_pkey true, outbox_quarantined true" {
		t.Errorf("the indexes are %s", v)
	}
}
