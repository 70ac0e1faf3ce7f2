package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Inserts notify only while a relay sleeps, because a transaction that notifies commits alone: PostgreSQL lets no other
// commit at the same time. Two advisory locks of one key tell:
//
//   - An insert tries to share it, until its transaction ends. Where it cannot, a relay sleeps, and it notifies.
//   - A relay that found nothing tries to take it for itself. Where it can, no transaction with rows that were not
//     announced is open; it looks once more, because one may just have been committed, and sleeps until it is notified.
//     Where it cannot, such a transaction is open, or another relay sleeps: it looks again soon, then less often.
//
// The lock of a transaction is let go after its rows can be seen, and that of a relay when its connection ends: then
// inserts send no NOTIFY, and the relays that are left look for themselves within pollLimit.
const (
	// idleKey and the table's OID are the key, in the space of keys that are two integers. It is "sidc".
	idleKey = 0x73696463

	pollFirst = 5 * time.Millisecond
	pollLimit = time.Second
)

// idleSQL is SQL that asks for the lock, or lets it go.
func (t *Table) idleSQL(function string) string {
	return fmt.Sprintf(`SELECT %s(%d, %d::oid::int4)`, function, idleKey, t.OID)
}

// listen waits for a notification, the poll interval at most.
func (s *session) listen(ctx, work context.Context, rd *batch) error {
	if s.notified {
		return nil
	}
	if !s.idle {
		if err := s.setIdle(work, stmtEnterIdle); err != nil || s.idle {
			return err // now what was committed before is looked for
		}
	}
	wait := s.r.o.PollInterval
	if !s.idle {
		s.pollAfter = min(max(2*s.pollAfter, pollFirst), pollLimit)
		wait = min(wait, s.pollAfter)
	}
	if len(s.held) > 0 { // of this round, or an earlier one: no NOTIFY is sent when they are free
		wait = min(wait, heldTime)
	}
	if !rd.front {
		wait = min(wait, max(0, time.Until(s.lowWater.due)))
	}
	if !s.notified {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := s.conn.WaitForNotification(ctx); err != nil && !pgconn.Timeout(err) && ctx.Err() == nil {
			return err
		}
	}
	if !s.notified { // an idle hour needs no memory
		s.free = nil
	}
	return nil
}

// leaveIdle lets inserts go on without notifying.
func (s *session) leaveIdle(ctx context.Context) error {
	if !s.idle {
		return nil
	}
	return s.setIdle(ctx, stmtLeaveIdle)
}

// setIdle tries to take the lock, or lets it go.
func (s *session) setIdle(ctx context.Context, stmt string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	r := s.conn.ExecPrepared(ctx, stmt, nil, nil, nil).Read()
	if r.Err != nil {
		return fmt.Errorf("%s: %w", stmt, r.Err)
	}
	s.idle = stmt == stmtEnterIdle && string(r.Rows[0][0]) == "t"
	return nil
}
