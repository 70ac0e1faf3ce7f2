package postgrestest

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestDatabase: what a test writes is in a database of its own, and returns as it was. The next test that gets it finds
// nothing of that.
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
	if v := b.Value(`SELECT current_database()`); v != b.Name || v == a.Name {
		t.Errorf("the database is %q", v)
	}
	if err := b.Fails(`SELECT * FROM t`); code(err) != "42P01" {
		t.Errorf("a table that is not there: %v", err)
	}
	used := map[string]bool{}
	for range 8 {
		t.Run("again", func(t *testing.T) {
			d := New(t)
			if v := d.Value(`SELECT to_regclass('t')::text || current_schemas(false)::text`); used[d.Name] && v != "NULL" {
				t.Errorf("a database that was used before has %s", v)
			}
			if v := d.Value(`SHOW search_path`); v != `"$user", public` {
				t.Errorf("the search path is %s", v)
			}
			used[d.Name] = true
			d.Exec(`CREATE TABLE t (id int); ALTER DATABASE ` + d.Name + ` SET search_path = nowhere; CREATE SCHEMA other`)
			d.Role("word", `GRANT SELECT ON t TO %s`)
			d.Conn()
		})
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
