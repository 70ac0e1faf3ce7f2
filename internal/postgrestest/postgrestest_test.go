package postgrestest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestDatabase: what a test writes is in a database of its own, and comes back as it was.
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

// TestServer: a server that was stopped, or killed in any way, comes back on its port with what was committed, and without
// what was not. One that is frozen keeps its connections, answers nobody, and goes on.
func TestServer(t *testing.T) {
	t.Parallel()
	s := Start(t, "max_connections = 37")
	first := s.DSN
	d := s.New()
	if v := d.Value(`SHOW max_connections`); v != "37" {
		t.Errorf("max_connections is %s", v)
	}
	d.Exec(`CREATE TABLE t (how text)`)
	for how, end := range map[string]func(){"stop": s.Stop, "immediate": s.Immediate, "kill": s.Kill} {
		d.Exec(`INSERT INTO t VALUES ($1)`, how)
		open := d.Conn()
		if _, err := open.Exec(t.Context(), `BEGIN; INSERT INTO t VALUES ('not committed')`).ReadAll(); err != nil {
			t.Fatal(err)
		}
		end()
		if _, err := pgconn.Connect(t.Context(), s.DSN); err == nil {
			t.Errorf("%s: the server still answers", how)
		}
		s.Restart()
		if s.DSN != first {
			t.Errorf("%s: the server is now at %s", how, s.DSN)
		}
		if d.conn.IsClosed() {
			t.Errorf("%s: closed before it was used", how)
		}
		_ = d.Fails(`SELECT 1`) // the old connection
		if v := d.Value(`SELECT string_agg(how, ' ') FROM t WHERE how = $1 OR how = 'not committed'`, how); v != how {
			t.Errorf("%s: the table holds %s", how, v)
		}
	}
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := pgconn.Connect(ctx, s.DSN); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server: %v", err)
	}
	s.Thaw()
	if v := d.Value(`SELECT count(*) FROM t`); v != "3" {
		t.Errorf("%s rows after the thaw", v)
	}
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
