package outbox

import (
	"context"
	"log/slog"
	"time"
)

const (
	maxLogged  = 10 // ids in one line of the log
	maxReasons = 5  // lines of one batch about rows that failed, and about rows that are quarantined

	nackedInterval = time.Minute // between lines about rows that the broker sends back, which it may do for days
)

// logBatch counts a batch and logs what failed in it, in a few lines however many rows there are.
func (r *Relay) logBatch(b *batch) {
	failures, given, sentBack, counts := reasons{}, reasons{}, reasons{}, map[result]int{}
	for i := range b.rows {
		x := &b.rows[i]
		what := x.result
		switch {
		case x.markErr != nil:
			if what = unmarked; counts[what] < maxLogged {
				r.log.Error("outbox mark failed", "id", x.id, "result", x.result.String(), "error", errorText(x.markErr),
					"retry_in", r.markFailures[x.id].pause.String())
			}
		case what == failed && x.quarantined:
			what = quarantined
			given.add(x)
		case what == failed:
			failures.add(x)
		case what == nacked:
			sentBack.add(x)
		case what == untouched:
			continue
		}
		counts[what]++
	}
	for what, n := range counts {
		r.metrics.rows.WithLabelValues(what.String()).Add(float64(n))
	}
	if n := counts[unmarked]; n > maxLogged {
		r.log.Error("more outbox marks failed", "rows", n-maxLogged)
	}
	failures.log(r.log, slog.LevelWarn, "outbox rows not published")
	given.log(r.log, slog.LevelError, "outbox rows quarantined")
	if len(sentBack) > 0 {
		r.nacks.Do(func(suppressed int) {
			sentBack.log(r.log.With("suppressed", suppressed), slog.LevelWarn, "outbox rows nacked")
		})
	}
}

// reasons are the ids of the rows that were not sent, by their error: the error in a log line must be that of each row
// in the line.
type reasons map[string][]string

// otherErrors is the text of the rows behind maxReasons: as many errors as rows are possible.
const otherErrors = "other errors: see last_error of each row"

func (s reasons) add(x *row) {
	text := errorText(x.err)
	if s[text] == nil && len(s) >= maxReasons {
		text = otherErrors
	}
	s[text] = append(s[text], x.id)
}

// log writes a line for each of them.
func (s reasons) log(l *slog.Logger, level slog.Level, event string) {
	for text, ids := range s {
		l.Log(context.Background(), level, event, "rows", len(ids), "ids", ids[:min(len(ids), maxLogged)], "error", text)
	}
}
