package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
func (s *session) mark(ctx context.Context, rd *batch) error {
	s.pace(rd)
	var rows []*row
	for i := range rd.rows {
		if x := &rd.rows[i]; !x.left() {
			rows = append(rows, x)
		}
	}
	err := s.markTogether(ctx, rows, nil, stmtCommit)
	if err != nil && isRowError(err) {
		err = s.markSingly(ctx, rows)
	}
	if err != nil {
		return fmt.Errorf("mark rows: %w", err)
	}
	s.r.unmarked.note(rows, time.Now(), s.r.o.limits.unmarked)
	s.r.logBatch(rd)
	return nil
}

// markTogether marks rows by one statement for each kind, and notes which of them were: a trigger or a policy may keep
// some. Other statements are run before and after. With an error none is marked.
func (s *session) markTogether(ctx context.Context, rows []*row, before []string, after ...string) (err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p := s.conn.StartPipeline(ctx)
	for _, stmt := range before {
		p.SendQueryPrepared(stmt, nil, nil, nil)
	}
	s.sendMarks(p, rows)
	for _, stmt := range after {
		p.SendQueryPrepared(stmt, nil, nil, nil)
	}
	byID := make(map[string]*row, len(rows))
	for _, x := range rows {
		byID[x.id] = x
	}
	err = pipelined(p, func(values [][]byte) error {
		if x := byID[string(values[0])]; x != nil {
			x.marked, x.quarantined = string(values[1]) == "t", string(values[2]) == "t"
		}
		return nil
	})
	if err != nil {
		for _, x := range rows {
			x.marked = false
		}
	}
	return err
}

// sendMarks sends the statements that mark rows. Each of them gives an id, whether that row was marked, and whether it
// is in quarantine.
func (s *session) sendMarks(p *pgconn.Pipeline, rows []*row) {
	var sentRows, failedRows, deferred []*row
	for _, x := range rows {
		switch x.result {
		case sent:
			sentRows = append(sentRows, x)
		case failed:
			failedRows = append(failedRows, x)
		default:
			deferred = append(deferred, x)
		}
	}
	if len(sentRows) > 0 {
		p.SendQueryPrepared(stmtSent, [][]byte{ids(sentRows)}, nil, nil)
	}
	if len(failedRows) > 0 {
		errs := array(len(failedRows), func(i int) (string, bool) { return errorText(failedRows[i].err), false })
		p.SendQueryPrepared(stmtFailed, [][]byte{ids(failedRows), errs, strconv.AppendInt(nil, int64(s.r.o.MaxAttempts), 10),
			interval(s.r.o.limits.failed)}, nil, nil)
	}
	if len(deferred) > 0 {
		until := array(len(deferred), func(i int) (string, bool) { return deferred[i].until, deferred[i].until == "" })
		p.SendQueryPrepared(stmtDeferred, [][]byte{ids(deferred), until, interval(s.nackPause)}, nil, nil)
	}
}

// pipelined sends what is in the pipeline, and gives all of its rows to each, which may be nil.
func pipelined(p *pgconn.Pipeline, each func(values [][]byte) error) (err error) {
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	defer func() {
		if e := p.Close(); err == nil {
			err = e
		}
	}()
	for {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		r, ok := results.(*pgconn.ResultReader)
		if !ok { // the end of the pipeline
			return nil
		}
		for r.NextRow() {
			if each == nil {
				continue
			}
			if err := each(r.Values()); err != nil {
				return err
			}
		}
		if _, err := r.Close(); err != nil {
			return err
		}
	}
}

func ids(rows []*row) []byte {
	return array(len(rows), func(i int) (string, bool) { return rows[i].id, false })
}

// errorText is what PostgreSQL can keep of an error.
func errorText(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "?")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + " …"
	}
	return text
}

// pace makes the pause of rows that the broker does not want longer while it does not.
func (s *session) pace(rd *batch) {
	for i := range rd.rows {
		if rd.rows[i].result == nacked {
			s.nackPause = min(max(2*s.nackPause, s.r.o.limits.nacked), maxNackPause)
			return
		}
	}
	if len(rd.order) > 0 {
		s.nackPause = 0
	}
}
