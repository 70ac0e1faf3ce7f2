package postgrestest

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestDatabase: what a test writes is in a database of its own, and returns as it was.
func TestDatabase(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	a.Exec(`CREATE TABLE t (id int, body bytea, note text)`)
	if n := a.Exec(`INSERT INTO t VALUES ($1, $2, $3), (8, '', 'x')`, 7, []byte{0, 255}, nil); n != 2 {
		t.Errorf("%d rows inserted", n)
	}
	if rows := a.Query(`SELECT id, body, note FROM t ORDER BY id`); len(rows) != 2 || strings.Join(rows[0], " ") != `7 \x00ff NULL` {
		t.Errorf("the rows are %v", rows)
	}
	if v := b.Value(`SELECT to_regclass('t')`); v != "NULL" {
		t.Errorf("another database has the table, too: %s", v)
	}
	if v := b.Value(`SELECT current_database()`); v != b.Name || !strings.HasPrefix(v, "testdatabase_") {
		t.Errorf("the database is %q", v)
	}
	if err := b.Fails(`SELECT * FROM t`); code(err) != "42P01" {
		t.Errorf("a table that is not there: %v", err)
	}
}

// TestRole: a role has the rights it was given and no others.
func TestRole(t *testing.T) {
	t.Parallel()
	d := New(t)
	d.Exec(`CREATE TABLE t (id int); INSERT INTO t VALUES (1)`)
	r := &Database{DSN: d.Role("it's secret", `GRANT SELECT ON t TO %s`), t: t}
	defer r.close()
	if v := r.Value(`SELECT count(*) FROM t`); v != "1" {
		t.Errorf("the role sees %s rows", v)
	}
	if err := r.Fails(`DELETE FROM t`); code(err) != "42501" {
		t.Errorf("the role may delete: %v", err)
	}
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
