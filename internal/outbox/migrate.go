package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrBusy says that others held the table, or migrated it, for as long as one waits for them.
var ErrBusy = errors.New("busy")

const (
	// migrateKey is the advisory lock of migrations, the same for every table.
	migrateKey = "7305804402566652271"
	// migrateWait is how long one waits for another who migrates: an index on many rows takes its time.
	migrateWait = 10 * time.Minute
	migratePoll = 200 * time.Millisecond
	// Statements that change the table wait for its lock, and inserts wait behind them: not for long, but often.
	migrateLockTimeout = time.Second
	migrateTries       = 20
	migratePause       = 500 * time.Millisecond
)

// Codes of PostgreSQL's errors.
const (
	codeLockTimeout = "55P03"
	codeDeadlock    = "40P01"
)

// Migrate creates the outbox, or adds to an existing table what the relay needs. It is idempotent, and several at a
// time run one after the other. before, which may be nil, is called with each statement.
//
// The app can go on inserting: it waits at most a second for changes of the table, and not for indexes. conn is for
// this alone: the settings of its session are changed, and it must be a connection to the server itself, not to a
// pooler that uses another one for every transaction.
func Migrate(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool, before func(sql string)) (*Migration,
	error) {
	if before == nil {
		before = func(string) {}
	}
	if err := migrateLock(ctx, conn); err != nil {
		return nil, err
	}
	defer func() { _ = exec(ctx, conn, "SELECT pg_advisory_unlock("+migrateKey+")") }()
	m, err := migrateInside(ctx, conn, n, notify, before)
	for i := 1; i < migrateTries && isCode(err, codeLockTimeout, codeDeadlock); i++ {
		if sleep(ctx, migratePause); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m, err = migrateInside(ctx, conn, n, notify, before)
	}
	if isCode(err, codeLockTimeout, codeDeadlock) {
		return nil, fmt.Errorf("the table is %w: a transaction holds it; nothing was changed: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	// Building an index takes as long as it takes, waits for every transaction that is older, and blocks no statement.
	if err := exec(ctx, conn, "SET lock_timeout = 0"); err != nil {
		return nil, err
	}
	for _, sql := range m.Outside {
		before(sql)
		if err := exec(ctx, conn, sql); err != nil {
			return nil, fmt.Errorf("build an index (run migrate again, which cleans up): %w", rights(err))
		}
	}
	t, err := Look(ctx, conn, m.Table)
	if err != nil {
		return nil, err
	}
	return m, t.Check()
}

// migrateLock waits for its turn. It asks again and again: one statement that waited would hold a snapshot, for which
// the other's index would wait, for ever.
func migrateLock(ctx context.Context, conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, migrateWait, ErrBusy)
	defer cancel()
	if err := exec(ctx, conn, "SET statement_timeout = 0"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for {
		rows, err := query(ctx, conn, "SELECT pg_try_advisory_lock("+migrateKey+")")
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		if string(rows[0][0]) == "t" {
			return nil
		}
		if sleep(ctx, migratePoll); ctx.Err() != nil {
			return fmt.Errorf("another one migrates: %w", context.Cause(ctx))
		}
	}
}

// migrateInside does what one transaction can do.
func migrateInside(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool, before func(string)) (*Migration,
	error) {
	if err := exec(ctx, conn, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d",
		migrateLockTimeout.Milliseconds())); err != nil {
		return nil, err
	}
	m, err := PlanMigration(ctx, conn, n, notify)
	if err == nil {
		for _, sql := range m.Inside {
			before(sql)
			if err = exec(ctx, conn, sql); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, errors.Join(rights(err), exec(ctx, conn, "ROLLBACK"))
	}
	if err := exec(ctx, conn, "COMMIT"); err != nil {
		return nil, err
	}
	return m, nil
}

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}
