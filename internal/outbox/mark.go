package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxError bounds what is written into last_error, in bytes.
const maxError = 1024

// maxNackPause bounds the pause of a row that the broker did not accept. It doubles from limits.nacked while that goes
// on: a full queue is not the row's fault.
const maxNackPause = 30 * time.Second

// mark records the outcome of the rows in the table and commits.
func (s *session) mark(ctx context.Context, b *batch) error {
	s.growNackPause(b)
	var rows []*row
	for i := range b.rows {
		if x := &b.rows[i]; !x.left() {
			rows = append(rows, x)
		}
	}
	b.moved = len(rows) > 0
	s.marked += len(rows)
	err := s.markTogether(ctx, rows, nil, call{name: stmtCommit})
	if err != nil && isRowError(err) {
		rows, err = s.markSingly(ctx, rows)
	}
	if err != nil {
		return fmt.Errorf("mark rows: %w", err)
	}
	s.r.markFailures.note(rows, time.Now(), s.r.o.limits.unmarked)
	s.r.logBatch(b)
	return nil
}

// markTogether marks rows by one statement for each kind, and notes which of them were not: a trigger or a policy may
// keep some. Other statements are run before and after. With an error none is marked.
func (s *session) markTogether(ctx context.Context, rows []*row, before []call, after ...call) error {
	kept := make(map[string]*row, len(rows))
	for _, x := range rows {
		kept[x.id] = x
	}
	err := s.execute(ctx, func(values [][]byte) error {
		if x := kept[string(values[0])]; x != nil && string(values[1]) == "t" {
			x.quarantined = string(values[2]) == "t"
			delete(kept, x.id)
		}
		return nil
	}, slices.Concat(before, s.marks(rows), after)...)
	if err != nil {
		return err
	}
	for _, x := range kept {
		x.markErr = errKept
	}
	return nil
}

// marks are the statements that mark rows. Each of them gives an id, whether that row was marked, and whether it is in
// quarantine.
func (s *session) marks(rows []*row) (calls []call) {
	of := map[result][]*row{}
	for _, x := range rows {
		of[x.result] = append(of[x.result], x)
	}
	if rows := of[sent]; len(rows) > 0 {
		calls = append(calls, call{name: stmtSent, params: [][]byte{ids(rows)}})
	}
	if rows := of[failed]; len(rows) > 0 {
		errs := array(rows, func(x *row) string { return errorText(x.err) })
		calls = append(calls, call{name: stmtFailed, params: [][]byte{
			ids(rows), errs, number(s.r.o.MaxAttempts), interval(s.r.o.limits.failed),
		}})
	}
	if rows := append(of[nacked], of[untouched]...); len(rows) > 0 {
		until := array(rows, func(x *row) string { return x.until })
		calls = append(calls, call{name: stmtDeferred, params: [][]byte{ids(rows), until, interval(s.nackPause)}})
	}
	return calls
}

// errorText is what PostgreSQL can keep of an error.
func errorText(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "?")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + " …"
	}
	return text
}

// growNackPause makes the pause of nacked rows longer while the broker goes on nacking.
func (s *session) growNackPause(b *batch) {
	switch {
	case slices.ContainsFunc(b.order, func(x *row) bool { return x.result == nacked }):
		s.nackPause = min(max(2*s.nackPause, s.r.o.limits.nacked), maxNackPause)
	case len(b.order) > 0:
		s.nackPause = 0
	}
}

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

// markFailures are rows whose outcome could not be written to the table, by id: a constraint or a trigger refuses it.
// They look unpublished, and the next batch would publish them again. So this relay leaves them out of claims for a
// time that doubles. Used by the goroutine of Run only.
type markFailures map[string]markFailure

type markFailure struct {
	sent  bool // later rows of its key need not wait for it
	until time.Time
	pause time.Duration
	err   error
}

const (
	maxUnmarkedPause = 5 * time.Minute
	// unmarkedMemory is after which time a row is forgotten that was not claimed again: it is deleted, or another relay
	// has it.
	unmarkedMemory = time.Minute
)

var errKept = errors.New("the UPDATE left it as it was: a trigger or a policy of the table keeps it")

// note records the outcome of marking rows. The first pause of a row that could not be marked is first.
func (m markFailures) note(rows []*row, now time.Time, first time.Duration) {
	for _, x := range rows {
		if x.markErr == nil {
			delete(m, x.id)
			continue
		}
		before := m[x.id]
		pause := min(max(2*before.pause, first), maxUnmarkedPause)
		m[x.id] = markFailure{before.sent || x.result == sent, now.Add(pause), pause, x.markErr}
	}
}

// forget removes rows that were not claimed for a while.
func (m markFailures) forget(now time.Time) {
	maps.DeleteFunc(m, func(_ string, r markFailure) bool { return now.After(r.until.Add(unmarkedMemory)) })
}

// excluded returns the ids that must not be claimed now, and the ids that count as sent for other rows of their key.
func (m markFailures) excluded(now time.Time) (excluded, sent []string) {
	for id, r := range m {
		if now.Before(r.until) {
			excluded = append(excluded, id)
		}
		if r.sent {
			sent = append(sent, id)
		}
	}
	return excluded, sent
}

// problem says what is wrong, for people; "" if nothing is.
func (m markFailures) problem(most int) string {
	if len(m) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(m)))
	text := fmt.Sprintf("%d rows cannot be marked, row %s: %s", len(m), first, errorText(m[first].err))
	if len(m) >= most {
		text = "no more are claimed: " + text
	}
	return text
}
