package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Old rows are deleted ten times within the retention time, but not more often than limits.retain.
const (
	retainSeldom = time.Hour
	// retainPause is between two steps of a run: relays and the app come first.
	retainPause = 20 * time.Millisecond
	// retainKey and the table's OID are the advisory lock of the one relay that deletes.
	retainKey = 1700976
)

// retain deletes rows that were sent longer ago than they are to be kept, now and then, until ctx ends. It works on a
// connection of its own, so that no row waits for it to be published.
func (r *Relay) retain(ctx context.Context) {
	for {
		if sleep(ctx, min(max(r.o.Retention/10, r.o.limits.retain), retainSeldom)); ctx.Err() != nil {
			return
		}
		done, err := r.retainOnce(ctx)
		if done.Deleted > 0 {
			r.o.Logger.Info("sent rows deleted", "table", r.o.Names.String(), "rows", done.Deleted)
		}
		if err != nil && ctx.Err() == nil {
			r.o.Logger.Warn("sent rows not deleted", "table", r.o.Names.String(), "error", err)
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
	if mine, err := retainLock(ctx, conn, t); err != nil || !mine {
		return Pruned{}, err
	}
	return Prune(ctx, conn, t, r.o.Retention, func(Pruned) error {
		sleep(ctx, retainPause)
		return ctx.Err()
	})
}

// retainLock reports whether this is the only relay that deletes. The lock ends with the connection.
func retainLock(ctx context.Context, conn *pgconn.PgConn, t *Table) (bool, error) {
	rows, err := query(ctx, conn, `SELECT pg_try_advisory_lock($1::bigint)`,
		strconv.AppendInt(nil, retainKey<<32|int64(t.OID), 10))
	if err != nil {
		return false, fmt.Errorf("ask whether another relay deletes rows: %w", err)
	}
	return string(rows[0][0]) == "t", nil
}
