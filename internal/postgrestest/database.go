// Package postgrestest gives tests a real PostgreSQL: the one at POSTGRES_DSN (see scripts/postgres.sh), or one of
// their own that they may break. It fakes none and never skips: without a server the test fails.
package postgrestest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// limit is how long a statement of a test may take, connecting included.
const limit = time.Minute

// DSN returns the server's URL, as its superuser.
func DSN(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("POSTGRES_DSN")
	if dsn == "" {
		t.Fatal("POSTGRES_DSN is unset: run the tests by scripts/test.sh, or below scripts/postgres.sh run 0 …")
	}
	return dsn
}

// Database is a database of one test alone. Its methods may be called by several goroutines, which then take turns.
type Database struct {
	DSN  string // as the superuser
	Name string

	t     testing.TB
	roles []string // of the test's goroutine alone
	mu    sync.Mutex
	conn  *pgconn.PgConn
}

// slots is the class of the advisory locks by which tests, also of other processes, own the databases test_1, test_2 …
const slots = 7365

// New takes an empty database of the server of POSTGRES_DSN for the test. Making and dropping one costs the server a
// tenth of a second, so it is kept for another test, and emptied by both.
func New(t testing.TB) *Database {
	t.Helper()
	owner := &Database{DSN: DSN(t), t: t}
	slot := owner.Value(`SELECT n FROM generate_series(1, 1000) n WHERE pg_try_advisory_lock($1, n) LIMIT 1`, slots)
	name := "test_" + slot
	if owner.Value(`SELECT count(*) FROM pg_database WHERE datname = $1`, name) == "0" {
		owner.Exec(`CREATE DATABASE ` + name)
	}
	d := &Database{DSN: with(t, owner.DSN, func(u *url.URL) { u.Path = "/" + name }), Name: name, t: t}
	empty := func() {
		d.close()
		owner.Exec(`SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = $1`, name)
		owner.Exec(`ALTER DATABASE ` + name + ` RESET ALL`)
		d.Exec(emptied)
	}
	empty()
	t.Cleanup(func() {
		empty()
		for _, role := range d.roles {
			d.Exec(`DROP ROLE "` + role + `"`)
		}
		d.close()
		owner.close() // and with it the lock
	})
	return d
}

// emptied makes the schemas of a database those of a fresh one.
const emptied = `DO $$ DECLARE name text; BEGIN
	FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
		EXECUTE format('DROP SCHEMA %I CASCADE', name);
	END LOOP;
	CREATE SCHEMA public AUTHORIZATION pg_database_owner;
	GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$`

// Exec runs SQL: one statement with arguments ($1, …), or any number of them without. A nil argument is NULL. It
// returns the number of rows that the last one changed.
func (d *Database) Exec(sql string, args ...any) int64 {
	d.t.Helper()
	results := d.must(sql, args)
	if len(results) == 0 {
		return 0
	}
	return results[len(results)-1].CommandTag.RowsAffected()
}

// Fails runs SQL that has to fail, and returns the error.
func (d *Database) Fails(sql string, args ...any) error {
	d.t.Helper()
	_, err := d.run(sql, args)
	if err == nil {
		d.t.Fatalf("%s: does not fail", sql)
	}
	return err
}

// Query returns the rows of the last statement as text, with NULL for null.
func (d *Database) Query(sql string, args ...any) [][]string {
	d.t.Helper()
	results := d.must(sql, args)
	var rows [][]string
	for _, values := range results[len(results)-1].Rows {
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = "NULL"
			if v != nil {
				row[i] = string(v)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Value returns the one value of the one row.
func (d *Database) Value(sql string, args ...any) string {
	d.t.Helper()
	rows := d.Query(sql, args...)
	if len(rows) != 1 || len(rows[0]) != 1 {
		d.t.Fatalf("%s: not one value but %d rows: %.200v", sql, len(rows), rows)
	}
	return rows[0][0]
}

// Conn opens another connection, closed when the test ends: for transactions that stay open and sessions that listen.
func (d *Database) Conn() *pgconn.PgConn {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgconn.Connect(ctx, d.DSN)
	if err != nil {
		d.t.Fatalf("connect to PostgreSQL: %v", err)
	}
	d.t.Cleanup(func() { shut(conn) })
	return conn
}

// Role makes a role that may log in and do nothing but what the grants say, in which %s is its name, quoted:
// `GRANT SELECT, UPDATE ON outbox TO %s`. It returns the database's URL as that role. Its password is word.
func (d *Database) Role(word string, grants ...string) string {
	d.t.Helper()
	name := unique(d.t)
	quoted := `"` + name + `"`
	d.Exec("CREATE ROLE " + quoted + " LOGIN PASSWORD '" + strings.ReplaceAll(word, "'", "''") + "'")
	d.roles = append(d.roles, name)
	for _, g := range grants {
		d.Exec(fmt.Sprintf(g, quoted))
	}
	return with(d.t, d.DSN, func(u *url.URL) { u.User = url.UserPassword(name, word) })
}

func (d *Database) must(sql string, args []any) []*pgconn.Result {
	d.t.Helper()
	results, err := d.run(sql, args)
	if err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return results
}

func (d *Database) run(sql string, args []any) ([]*pgconn.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if d.conn == nil || d.conn.IsClosed() {
		conn, err := pgconn.Connect(ctx, d.DSN)
		if err != nil {
			return nil, err
		}
		d.conn = conn
	}
	if len(args) == 0 {
		return d.conn.Exec(ctx, sql).ReadAll()
	}
	values := make([][]byte, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case nil:
		case []byte:
			values[i] = fmt.Appendf(nil, `\x%x`, a)
		default:
			values[i] = fmt.Append(nil, a)
		}
	}
	r := d.conn.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	return []*pgconn.Result{r}, r.Err
}

func (d *Database) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		shut(d.conn)
	}
}

func shut(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func with(t testing.TB, dsn string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("POSTGRES_DSN is not a URL")
	}
	change(u)
	return u.String()
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// unique is a name that no other test uses, nor another run of this one. PostgreSQL takes 63 bytes.
func unique(t testing.TB) string {
	name := notInNames.ReplaceAllString(strings.ToLower(t.Name()), "_")
	return fmt.Sprintf("%.50s_%08x", name, rand.Uint32())
}
