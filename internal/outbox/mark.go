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

// nackPause is how long a row waits that the broker did not want, at first; it doubles while that goes on. Its queue is
// full, which is not the row's fault.
const (
	nackPause    = time.Second
	maxNackPause = 30 * time.Second
)

// mark writes down what became of the rows and ends the transaction.
func (s *session) mark(ctx context.Context, rd *round) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var sentRows, failedRows, deferred []*row
	for i := range rd.rows {
		x := &rd.rows[i]
		switch {
		case x.result == sent:
			sentRows = append(sentRows, x)
		case x.result == failed:
			failedRows = append(failedRows, x)
		case x.result == nacked, x.until != "":
			deferred = append(deferred, x)
		}
	}
	s.pace(rd)
	p := s.conn.StartPipeline(ctx)
	if len(sentRows) > 0 {
		p.SendQueryPrepared(stmtSent, [][]byte{ids(sentRows)}, nil, nil)
	}
	if len(failedRows) > 0 {
		errs := array(len(failedRows), func(i int) (string, bool) { return errorText(failedRows[i].err), false })
		p.SendQueryPrepared(stmtFailed, [][]byte{ids(failedRows), errs, strconv.AppendInt(nil, int64(s.r.o.MaxAttempts), 10)}, nil, nil)
	}
	if len(deferred) > 0 {
		until := array(len(deferred), func(i int) (string, bool) { return deferred[i].until, deferred[i].until == "" })
		p.SendQueryPrepared(stmtDeferred, [][]byte{ids(deferred), until, fmt.Appendf(nil, "%d ms", s.nackPause.Milliseconds())}, nil, nil)
	}
	p.SendQueryPrepared(stmtCommit, nil, nil, nil)
	quarantined := map[string]bool{}
	marked, err := pipelined(p, func(values [][]byte) error {
		quarantined[string(values[0])] = string(values[1]) == "t"
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark rows: %w", err)
	}
	s.r.tell(rd, quarantined)
	// Rows that cannot be marked would be published again and again.
	if want := int64(len(sentRows) + len(failedRows) + len(deferred)); marked != want {
		return fmt.Errorf("mark rows: %d of %d were marked: a policy or a trigger of the table keeps the others", marked, want)
	}
	return nil
}

// pipelined sends what is in the pipeline, gives all of its rows to each, which may be nil, and counts those that it changes.
func pipelined(p *pgconn.Pipeline, each func(values [][]byte) error) (changed int64, err error) {
	if err := p.Sync(); err != nil {
		return 0, errors.Join(err, p.Close())
	}
	defer func() {
		if e := p.Close(); err == nil {
			err = e
		}
	}()
	for {
		results, err := p.GetResults()
		if err != nil {
			return changed, err
		}
		r, ok := results.(*pgconn.ResultReader)
		if !ok { // the end of the pipeline
			return changed, nil
		}
		for r.NextRow() {
			if each == nil {
				continue
			}
			if err := each(r.Values()); err != nil {
				return changed, err
			}
		}
		tag, err := r.Close()
		if err != nil {
			return changed, err
		}
		changed += tag.RowsAffected()
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
func (s *session) pace(rd *round) {
	for i := range rd.rows {
		if rd.rows[i].result == nacked {
			s.nackPause = min(max(2*s.nackPause, nackPause), maxNackPause)
			return
		}
	}
	if len(rd.order) > 0 {
		s.nackPause = 0
	}
}
