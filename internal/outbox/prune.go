package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// pruneRows is how many rows one statement reads, so that it ends soon even if it deletes few.
const pruneRows = 1000

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
	rows, err := query(ctx, conn, `SELECT (clock_timestamp() - $1::float8 * interval '1 second')::text`,
		strconv.AppendFloat(nil, older.Seconds(), 'f', -1, 64))
	if err != nil {
		return done, fmt.Errorf("ask for the time: %w", err)
	}
	cutoff := rows[0][0]
	var last []byte // all rows up to this id have been read
	for {
		rows, err := query(ctx, conn, t.pruneSQL(), last, cutoff, strconv.AppendInt(nil, pruneRows, 10))
		if err != nil {
			return done, fmt.Errorf("delete rows of table %s: %w", &t.Names, mayDelete(err, &t.Names))
		}
		scanned, deleted, err := counts(rows[0])
		if err != nil {
			return done, fmt.Errorf("delete rows of table %s: %w", &t.Names, err)
		}
		done.Scanned += scanned
		done.Deleted += deleted
		if after != nil {
			if err := after(done); err != nil {
				return done, err
			}
		}
		if last = rows[0][0]; scanned < pruneRows {
			return done, nil
		}
	}
}

// mayDelete explains an error that says that the role may not: it has to be given what the relay does without.
func mayDelete(err error, n *Names) error {
	if !isCode(err, codeDenied) {
		return err
	}
	return fmt.Errorf("%w; this needs the right to DELETE besides those of the relay: as the owner of the table, GRANT "+
		"DELETE ON %s TO the role", err, n)
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
		SELECT (SELECT id FROM next ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM next), (SELECT count(*) FROM gone)`)
}

func counts(row [][]byte) (scanned, deleted int64, err error) {
	if scanned, err = strconv.ParseInt(string(row[1]), 10, 64); err != nil {
		return 0, 0, err
	}
	deleted, err = strconv.ParseInt(string(row[2]), 10, 64)
	return scanned, deleted, err
}
