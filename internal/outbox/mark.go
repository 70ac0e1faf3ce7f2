package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
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
