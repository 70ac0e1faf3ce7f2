package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// pruneRows is how many rows one statement reads, so that it ends soon even if it deletes few.
	pruneRows = 1000

	// A relay deletes old rows ten times within the retention time, but not more often than limits.retain.
	retainSeldom = time.Hour
	// retainPause is between two steps of a run: relays and the app come first.
	retainPause = 20 * time.Millisecond
	// retainKey and the table's OID are the advisory lock of the one relay that deletes.
	retainKey  = 1700976
	retainLock = `SELECT to_json(pg_try_advisory_lock($1::bigint))`
)

// Pruned is what a Prune has done.
type Pruned struct {
	Scanned int64 `json:"scanned"` // rows that were read
	Deleted int64 `json:"deleted"`
}

// Prune deletes rows that were sent longer ago than age, and no others: neither pending rows nor those in quarantine.
// It goes through the table by id, a thousand rows and one transaction at a time, and leaves rows that are locked.
// after, which may be nil, is called with the progress after each, and its error ends the run. It needs the rights to
// SELECT, UPDATE and DELETE. The result is what was done, also with an error.
func Prune(ctx context.Context, conn *pgconn.PgConn, t *Table, older time.Duration, after func(Pruned) error) (Pruned,
	error) {
	var done Pruned
	before, err := query(ctx, conn, `SELECT clock_timestamp() - $1::interval`, interval(older))
	if err != nil {
		return done, fmt.Errorf("ask for the time: %w", err)
	}
	var last []byte // all rows up to this id have been read
	for {
		var step struct {
			Pruned

			Last string
		}
		err := readJSON(ctx, conn, &step, t.pruneSQL(), last, before[0][0], number(pruneRows))
		if err != nil {
			return done, fmt.Errorf("delete rows of table %s: %w", &t.Names, explainDenied(err, "this needs the right to "+
				"DELETE besides those of the relay: as the owner of the table, GRANT DELETE ON "+t.String()+" TO the role"))
		}
		done.Scanned += step.Scanned
		done.Deleted += step.Deleted
		if after != nil {
			if err := after(done); err != nil {
				return done, err
			}
		}
		if last = []byte(step.Last); step.Scanned < pruneRows {
			return done, nil
		}
	}
}

// pruneSQL deletes old sent rows among the next rows by id. It returns the last id, how many it read and how many it
// deleted. Each row is checked again once it is locked: it may have been released, or changed, in between.
func (t *Table) pruneSQL() string {
	const old = `{sent_at} < $2::timestamptz AND {quarantined_at} IS NULL`
	return t.expand(`WITH next AS MATERIALIZED (SELECT {id} AS id, ` + old + ` AS old FROM {table}
			WHERE $1::{idtype} IS NULL OR {id} > $1::{idtype} ORDER BY {id} LIMIT $3::int),
		locked AS MATERIALIZED (SELECT {id} AS id FROM {table} WHERE {id} IN (SELECT id FROM next WHERE old) AND ` + old + `
			ORDER BY {id} FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM {table} WHERE {id} IN (SELECT id FROM locked) RETURNING 1)
		SELECT json_build_object('last', (SELECT id::text FROM next ORDER BY id DESC LIMIT 1),
			'scanned', (SELECT count(*) FROM next), 'deleted', (SELECT count(*) FROM gone))`)
}

// retain deletes rows that were sent longer ago than they are to be kept, now and then, until ctx ends. It works on a
// connection of its own, so that no row waits for it to be published.
func (r *Relay) retain(ctx context.Context) {
	for {
		if sleep(ctx, min(max(r.o.Retention/10, r.o.limits.retain), retainSeldom)); ctx.Err() != nil {
			return
		}
		done, err := r.retainOnce(ctx)
		if done.Deleted > 0 {
			r.log.Info("sent rows deleted", "rows", done.Deleted)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("sent rows not deleted", "error", err)
		}
	}
}

func (r *Relay) retainOnce(ctx context.Context) (Pruned, error) {
	conn, err := r.o.Database.Connect(ctx, nil)
	if err != nil {
		return Pruned{}, err
	}
	defer Close(conn)
	t, err := Ready(ctx, conn, r.o.Names)
	if err != nil {
		return Pruned{}, err
	}
	var alone bool // the lock ends with the connection
	if err := readJSON(ctx, conn, &alone, retainLock, number(retainKey<<32|int64(t.OID))); err != nil || !alone {
		return Pruned{}, err
	}
	return Prune(ctx, conn, t, r.o.Retention, func(Pruned) error {
		sleep(ctx, retainPause)
		return ctx.Err()
	})
}
