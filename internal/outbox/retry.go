package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrID says that no row of the table could have such an id.
var ErrID = errors.New("not an id of the table")

// retryRows is how many rows one statement releases.
const retryRows = 1000

// Released is what a release from the quarantine has done.
type Released struct {
	Released int64    `json:"released"`
	Missing  []string `json:"missing"` // ids of which no row is in quarantine
}

// Retry releases rows with these ids, as the database writes them, from quarantine. They are due at once and have all
// their attempts again. The error is ErrID when the table cannot have such an id.
func Retry(ctx context.Context, conn *pgconn.PgConn, t *Table, ids []string) (Released, error) {
	var done Released
	err := readJSON(ctx, conn, &done, t.expand(`WITH ids AS MATERIALIZED (SELECT DISTINCT id FROM unnest($1::{idtype}[]) AS w(id)),
		released AS (UPDATE {table} SET `+release+` WHERE {id} IN (SELECT id FROM ids) AND `+inQuarantine+` RETURNING {id} AS id)
		SELECT json_build_object('released', (SELECT count(*) FROM released), 'missing', (
			SELECT COALESCE(json_agg(id::text ORDER BY id), '[]') FROM ids WHERE id NOT IN (SELECT id FROM released)))`), texts(ids))
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code[:2] == "22" { // data exception
		return done, fmt.Errorf("%w: %s", ErrID, e.Message)
	}
	if err != nil {
		return done, fmt.Errorf("release rows of table %s: %w", &t.Names, rights(err))
	}
	return done, notifyRelays(ctx, conn, t)
}

// RetryAll releases all rows that are in quarantine when it begins, a thousand in one transaction at a time. The result
// is what was done, also with an error.
func RetryAll(ctx context.Context, conn *pgconn.PgConn, t *Table) (Released, error) {
	done := Released{Missing: []string{}}
	// A row that fails every time is in quarantine again soon, and must not be released for ever.
	start, err := query(ctx, conn, `SELECT clock_timestamp()`)
	if err != nil {
		return done, fmt.Errorf("ask for the time: %w", err)
	}
	sql := t.expand(`WITH chosen AS MATERIALIZED (SELECT {id} AS id FROM {table} WHERE ` + inQuarantine + ` AND {quarantined_at} <= $1::timestamptz
			ORDER BY {id} LIMIT $2::int FOR UPDATE),
		released AS (UPDATE {table} SET ` + release + ` WHERE {id} IN (SELECT id FROM chosen) RETURNING 1)
		SELECT count(*) FROM released`)
	for {
		var n int64
		if err := readJSON(ctx, conn, &n, sql, start[0][0], number(retryRows)); err != nil {
			return done, fmt.Errorf("release rows of table %s: %w", &t.Names, rights(err))
		}
		if n == 0 {
			return done, notifyRelays(ctx, conn, t)
		}
		done.Released += n
	}
}

// The error stays readable until the next one replaces it.
const release = `{quarantined_at} = NULL, {attempts} = 0, {send_after} = clock_timestamp()`

// notifyRelays sends NOTIFY, so that idle relays claim the released rows.
func notifyRelays(ctx context.Context, conn *pgconn.PgConn, t *Table) error {
	if _, err := query(ctx, conn, `SELECT pg_notify($1, '')`, []byte(t.Channel())); err != nil {
		return fmt.Errorf("notify the relays: %w", err)
	}
	return nil
}
