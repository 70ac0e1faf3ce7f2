package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sethvargo/go-retry"
)

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
	codeDenied      = "42501"
	codeLockTimeout = "55P03"
	codeDeadlock    = "40P01"
)

// Migrate creates the outbox, or adds to an existing table what the relay needs. It is idempotent, and several at a
// time run one after the other. before is called with each statement.
//
// The app can go on inserting: it waits at most a second for changes of the table, and not for indexes. conn is for
// this alone: the settings of its session are changed, and it must be a connection to the server itself, not to a
// pooler that uses another one for every transaction. It is closed when ctx has ended.
func Migrate(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool, before func(sql string)) (m *Migration,
	err error) {
	if err := migrateLock(ctx, conn); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	defer func() {
		if ctx.Err() != nil { // no statement is sent any more: the end of the session ends its transaction and its lock
			Close(conn)
		}
		_ = exec(ctx, conn, "SELECT pg_advisory_unlock("+migrateKey+")")
	}()
	tries := retry.WithMaxRetries(migrateTries-1, retry.NewConstant(migratePause))
	err = retry.Do(ctx, tries, func(ctx context.Context) error {
		if m, err = migrateInside(ctx, conn, n, notify, before); isCode(err, codeLockTimeout, codeDeadlock) {
			err = fmt.Errorf("the table is busy: a transaction holds it; nothing was changed: %w", err)
			return retry.RetryableError(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// Building an index may take hours, waits for every transaction that is older, and blocks no statement.
	if err := execAll(ctx, conn, m.Outside, before); err != nil {
		return nil, fmt.Errorf("build an index (run migrate again, which cleans up): %w", rights(err))
	}
	_, err = Ready(ctx, conn, m.Table)
	return m, err
}

// migrateLock waits for its turn. It asks again and again: one statement that waited would hold a snapshot, for which
// the other's index would wait, for ever.
func migrateLock(ctx context.Context, conn *pgconn.PgConn) error {
	another := errors.New("another process migrates")
	ctx, cancel := context.WithTimeoutCause(ctx, migrateWait, another)
	defer cancel()
	if err := exec(ctx, conn, "SET statement_timeout = 0; SET lock_timeout = 0"); err != nil {
		return err
	}
	return retry.Do(ctx, retry.NewConstant(migratePoll), func(ctx context.Context) error {
		rows, err := query(ctx, conn, "SELECT pg_try_advisory_lock("+migrateKey+")")
		if err == nil && string(rows[0][0]) == "f" {
			return retry.RetryableError(another)
		}
		return err
	})
}

// migrateInside does what one transaction can do.
func migrateInside(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool, before func(string)) (*Migration,
	error) {
	begin := fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d", migrateLockTimeout.Milliseconds())
	if err := exec(ctx, conn, begin); err != nil {
		return nil, err
	}
	m, err := PlanMigration(ctx, conn, n, notify)
	if err == nil {
		err = execAll(ctx, conn, m.Inside, before)
	}
	if err == nil {
		err = exec(ctx, conn, "COMMIT")
	}
	if err != nil {
		return nil, errors.Join(rights(err), exec(ctx, conn, "ROLLBACK"))
	}
	return m, nil
}

func execAll(ctx context.Context, conn *pgconn.PgConn, statements []string, before func(string)) error {
	for _, sql := range statements {
		before(sql)
		if err := exec(ctx, conn, sql); err != nil {
			return err
		}
	}
	return nil
}

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// explainDenied adds what to do to an error that says that the role may not.
func explainDenied(err error, what string) error {
	if isCode(err, codeDenied) {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}

func rights(err error) error {
	return explainDenied(err, "do it as the owner of the table, e.g. with the SQL of 'sidecar outbox migrate --print'")
}
