package outbox

import "slices"

// begin and end are the span of a row's publish.
func (r *Relay) begin(*row) {}
func (r *Relay) end(*row)   {}

const maxTold = 10 // ids in one line of the log

// tell counts a round and logs what went wrong in it: one line, however many rows there are.
func (r *Relay) tell(rd *round, quarantined map[string]bool) {
	var failures, given []string
	var why, last error
	for i := range rd.rows {
		x := &rd.rows[i]
		switch {
		case x.result == sent:
			r.metrics.rows[resultSent].Inc()
		case x.result == nacked:
			r.metrics.rows[resultNacked].Inc()
		case x.result == unknown:
			r.metrics.rows[resultUnknown].Inc()
		case x.result == failed && quarantined[x.id]:
			r.metrics.rows[resultQuarantined].Inc()
			given, last = append(given, x.id), x.err
		case x.result == failed:
			r.metrics.rows[resultFailed].Inc()
			failures, why = append(failures, x.id), x.err
		}
	}
	if len(failures) > 0 {
		r.o.Logger.Warn("rows could not be published", "table", r.o.Names.String(), "rows", len(failures), "ids", some(failures), "error", why)
	}
	if len(given) > 0 {
		r.o.Logger.Error("rows are quarantined", "table", r.o.Names.String(), "rows", len(given), "ids", some(given), "error", last)
	}
}

func some(ids []string) []string { return slices.Clip(ids[:min(len(ids), maxTold)]) }
