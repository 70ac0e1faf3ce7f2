package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// database is the PostgreSQL that scripts/postgres.sh has started.
type database struct {
	ctx     context.Context
	dsn     string
	version string
	pid     int // 0: unknown, and so is its CPU time
	conn    *pgconn.PgConn
	timed   bool // the server counts what statements take
}

func openDatabase(ctx context.Context, dsn string) (*database, error) {
	d := &database{ctx: ctx, dsn: dsn, version: os.Getenv("POSTGRES_VERSION")}
	if d.dsn == "" {
		return nil, errors.New("POSTGRES_DSN is unset: run it below scripts/postgres.sh, as make bench does")
	}
	var err error
	if d.pid, err = serverPID(ctx, os.Getenv("POSTGRES_DIR")); err != nil {
		return nil, err
	}
	if d.conn, err = pgconn.Connect(ctx, d.dsn); err != nil {
		return nil, err
	}
	loaded, err := d.row("SHOW shared_preload_libraries")
	if err != nil {
		return nil, err
	}
	if d.timed = strings.Contains(string(loaded[0]), "pg_stat_statements"); d.timed {
		err = d.exec("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	}
	return d, err
}

func (d *database) exec(sql string) error {
	if _, err := d.conn.Exec(d.ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// row is the only row of a query.
func (d *database) row(sql string) ([][]byte, error) {
	results, err := d.conn.Exec(d.ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return nil, fmt.Errorf("%s: not one row", sql)
	}
	return results[0].Rows[0], nil
}

// numbers are the values of the only row of a query.
func (d *database) numbers(sql string, into ...*float64) error {
	row, err := d.row(sql)
	if err != nil {
		return err
	}
	for i, v := range into {
		if *v, err = strconv.ParseFloat(string(row[i]), 64); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// migrate lets the sidecar make its table, once.
func (r *rig) migrate(sidecar string) error {
	cmd := exec.CommandContext(r.ctx, sidecar, "outbox", "migrate")
	cmd.Env = []string{"SIDECAR_SERVICE=" + service, "SIDECAR_AMQP_URL=" + r.url, "SIDECAR_APP_URL=http://" + r.appData +
		"/", "SIDECAR_OUTBOX_DSN=" + r.db.dsn}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sidecar outbox migrate: %w\n%s", err, out)
	}
	return nil
}

// empty leaves a table as it is after migrate.
func (d *database) empty() error {
	err := errors.Join(d.exec("TRUNCATE outbox"), d.exec("CHECKPOINT"))
	if d.timed {
		err = errors.Join(err, d.exec("SELECT pg_stat_statements_reset()"))
	}
	return err
}

// pend adds n rows in a transaction, which it leaves open.
func (d *database) pend(n, body int) error {
	return errors.Join(d.exec("BEGIN"), d.exec(fmt.Sprintf(
		`INSERT INTO outbox (routing_key, body) SELECT '%s', decode(repeat(md5(g::text), %d), 'hex') FROM generate_series(1, %d) g`,
		sentQueue, body/16, n)))
}

// tableSize is how many bytes the table takes on the disk, with its indexes and its TOAST table.
func (d *database) tableSize(into *float64) error {
	return d.numbers("SELECT pg_total_relation_size('outbox')", into)
}

// sent says whether no row is left to be sent.
func (d *database) sent() (bool, error) {
	row, err := d.row("SELECT NOT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL AND quarantined_at IS NULL)")
	return err == nil && string(row[0]) == "t", err
}

// relays waits until so many relays are connected.
func (r *rig) relays(n int) error {
	for end := time.Now().Add(r.patience); ; {
		var there float64
		if err := r.db.numbers("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'",
			&there); err != nil {
			return err
		}
		if there >= float64(n) {
			return r.pause(r.rest)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%.0f of %d relays are connected to the database", there, n)
		}
		if err := r.pause(50 * time.Millisecond); err != nil {
			return err
		}
	}
}

// claims are how often rows were claimed and how long the server took for that, since empty. Without counting they are
// 0.
func (d *database) claims() (calls, ms float64, err error) {
	if !d.timed {
		return 0, 0, nil
	}
	err = d.numbers(`SELECT coalesce(sum(calls), 0), coalesce(sum(total_exec_time), 0) FROM pg_stat_statements WHERE query ~ 'FOR (NO KEY )?UPDATE' AND query ~ 'SKIP LOCKED' AND query !~ 'pg_stat_statements'`, &calls, &ms)
	return calls, ms, err
}
