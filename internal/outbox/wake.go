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
//   - A relay that found nothing tries to take it for itself. Where it can, no transaction with rows that nobody was told of
//     is open; it looks once more, because one may just have been committed, and sleeps until it is notified. Where it cannot,
//     such a transaction is open, or another relay sleeps: it looks again soon, then less often.
//
// The lock of a transaction is let go after its rows can be seen, and that of a relay when its connection ends: then inserts
// tell nobody, and the relays that are left look for themselves within awakeLimit.
const (
	// wakeKey and the table's OID are the key, in the space of keys that are two integers. It is "sidc".
	wakeKey = 0x73696463

	awakeFirst = 5 * time.Millisecond
	awakeLimit = time.Second
)

// sleeping is SQL that asks for the lock, or lets it go.
func (t *Table) sleeping(function string) string {
	return fmt.Sprintf(`SELECT %s(%d, %d::oid::int4)`, function, wakeKey, t.OID)
}

// listen waits for a notification, the poll interval at most.
func (s *session) listen(ctx, work context.Context, rd *round) error {
	if s.notified {
		return nil
	}
	if !s.asleep {
		if err := s.turn(work, stmtSleep); err != nil || s.asleep {
			return err // now what was committed before is looked for
		}
	}
	wait := s.r.o.PollInterval
	if !s.asleep {
		s.awake = min(max(2*s.awake, awakeFirst), awakeLimit)
		wait = min(wait, s.awake)
	}
	if len(s.held) > 0 { // of this round, or an earlier one: nobody tells when they can be had
		wait = min(wait, heldTime)
	}
	if !rd.front {
		wait = min(wait, max(0, time.Until(s.floor.due)))
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

// wake lets inserts go on without notifying.
func (s *session) wake(ctx context.Context) error {
	if !s.asleep {
		return nil
	}
	return s.turn(ctx, stmtWake)
}

// turn tries to take the lock, or lets it go.
func (s *session) turn(ctx context.Context, stmt string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	r := s.conn.ExecPrepared(ctx, stmt, nil, nil, nil).Read()
	if r.Err != nil {
		return fmt.Errorf("%s: %w", stmt, r.Err)
	}
	s.asleep = stmt == stmtSleep && string(r.Rows[0][0]) == "t"
	return nil
}
