package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Inserts send NOTIFY only when a relay is idle, because a transaction that notifies commits alone: PostgreSQL lets no
// other transaction commit at the same time. An advisory lock says whether a relay is idle:
//
//   - An insert tries to take it shared until its transaction ends. If it cannot, a relay is idle, and the insert
//     notifies.
//   - A relay that found no rows tries to take it exclusively. If it can, no transaction with unannounced rows is open;
//     it claims once more, because one may just have been committed, and is idle until it is notified. If it cannot,
//     such a transaction is open, or another relay is idle: it claims again soon, then less often.
//
// The lock of a transaction is released after its rows can be seen, and that of a relay when its connection ends: then
// inserts send no NOTIFY, and the other relays poll at least every pollLimit.
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
func (s *session) listen(ctx, work context.Context, b *batch) error {
	if s.notified {
		return nil
	}
	if !s.idle {
		if err := s.setIdle(work, stmtEnterIdle); err != nil || s.idle {
			return err // now claim what was committed before
		}
	}
	wait := s.r.o.PollInterval
	if !s.idle {
		s.pollAfter = min(max(2*s.pollAfter, pollFirst), pollLimit)
		wait = min(wait, s.pollAfter)
	}
	if len(s.heldKeys) > 0 { // of this batch, or an earlier one: no NOTIFY is sent when they are free
		wait = min(wait, heldTime)
	}
	if !b.front {
		wait = min(wait, max(0, time.Until(s.lowWater.due)))
	}
	if !s.notified {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := s.conn.WaitForNotification(ctx); err != nil && !pgconn.Timeout(err) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// setIdle tries to take the lock, or lets it go.
func (s *session) setIdle(ctx context.Context, stmt string) error {
	err := s.execute(ctx, func(values [][]byte) error {
		s.idle = stmt == stmtEnterIdle && string(values[0]) == "t"
		return nil
	}, call{name: stmt})
	if err != nil {
		return fmt.Errorf("statement %q: %w", stmt, err)
	}
	return nil
}
