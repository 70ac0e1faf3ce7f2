package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// markSingleShare is the part of a statement's time that marking some of the rows may take: one that a trigger holds up
// must not take all of it from the others.
const markSingleShare = 16

var errMarkTimeout = errors.New("marking the rows one by one took too long")

// markSingly marks rows that cannot be marked together, because the database does not let one of them: each under a
// savepoint. It ends the transaction, and begins with a new one, which has to lock the rows again. It returns those
// that it got, each with why it could not be marked: another relay may have the others.
//
// Savepoints around every mark would spare that, and cost each row an entry in pg_multixact: PostgreSQL needs one where
// a subtransaction changes what its transaction has locked.
func (s *session) markSingly(ctx context.Context, rows []*row) (mine []*row, err error) {
	if mine, err = s.relock(ctx, rows); err != nil {
		return nil, fmt.Errorf("lock rows again: %w", err)
	}
	until := time.Now().Add(s.r.o.Database.timeout())
	for _, x := range mine {
		if time.Now().After(until) {
			x.markErr = errMarkTimeout
			continue
		}
		// What the database would check at the commit it has to check here.
		err := s.markTogether(ctx, []*row{x}, []call{{name: stmtSave}}, call{name: stmtConstraints}, call{name: stmtRelease})
		if err != nil && isRowError(err) {
			x.markErr = err
			err = s.back(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return mine, s.execute(ctx, nil, call{name: stmtCommit})
}

// relock ends the transaction that failed and begins another one with the same rows, but for those that are lost.
func (s *session) relock(ctx context.Context, rows []*row) ([]*row, error) {
	locked := map[string]bool{}
	timeout := number(s.r.o.Database.timeout().Milliseconds() / markSingleShare)
	err := s.execute(ctx, func(values [][]byte) error {
		locked[string(values[0])] = true
		return nil
	}, call{name: stmtRollback}, call{name: stmtBegin}, call{name: stmtRelock, params: [][]byte{ids(rows)}},
		call{name: stmtTimeout, params: [][]byte{timeout}})
	return slices.DeleteFunc(rows, func(x *row) bool { return !locked[x.id] }), err
}

// isRowError reports whether an error may be one of some rows alone: a constraint, a trigger, a lock. Others are the
// connection's or the server's, and the next session will see.
func isRowError(err error) bool {
	const canceled = "57014" // by the timeout of statements too
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) != 5 || e.SeverityUnlocalized != "ERROR" {
		return false
	}
	switch e.Code[:2] {
	// connection, transaction, statement's name, resources, operator, system, internal
	case "08", "25", "26", "53", "57", "58", "XX":
		return e.Code == canceled
	}
	return true
}
