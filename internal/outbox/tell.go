package outbox

import (
	"slices"

	"sidecar/internal/telemetry"
)

// begin starts the span of a row's publish, whose context goes into the message. While tracing is off the row's own stays.
func (r *Relay) begin(x *row) {
	m := &x.pub.Msg
	in := telemetry.CarrierFrom(m.Headers)
	x.span = r.o.Tracing.Produce(in, telemetry.ProduceAttrs{
		MessageID: m.MessageId, CorrelationID: m.CorrelationId, Exchange: x.pub.Exchange, RoutingKey: x.pub.Key, BodySize: len(m.Body),
	})
	out := x.span.Carrier()
	if out == in {
		return
	}
	for name, value := range map[string]string{"traceparent": out.Traceparent, "tracestate": out.Tracestate, "baggage": out.Baggage} {
		if delete(m.Headers, name); value != "" {
			m.Headers[name] = value
		}
	}
}

const maxTold = 10 // ids in one line of the log

// tell counts a round and logs what went wrong in it: few lines, however many rows there are.
func (r *Relay) tell(rd *round) {
	var failures, given, kept []string
	var why, last error
	for i := range rd.rows {
		x := &rd.rows[i]
		what := x.result.String()
		switch {
		case x.unmarked != nil:
			what = resultUnmarked
			if kept = append(kept, x.id); len(kept) <= maxTold {
				r.o.Logger.Error("a row cannot be marked", "table", r.o.Names.String(), "id", x.id, "became", x.result.String(),
					"error", errorText(x.unmarked), "retry_in", r.unmarked[x.id].pause.String())
			}
		case x.result == failed && x.quarantined:
			what = resultQuarantined
			given, last = append(given, x.id), x.err
		case x.result == failed:
			failures, why = append(failures, x.id), x.err
		case x.result == untouched:
			continue
		}
		r.metrics.rows[what].Inc()
	}
	if len(kept) > maxTold {
		r.o.Logger.Error("more rows cannot be marked", "table", r.o.Names.String(), "rows", len(kept)-maxTold)
	}
	if len(failures) > 0 {
		r.o.Logger.Warn("rows could not be published", "table", r.o.Names.String(), "rows", len(failures), "ids", some(failures), "error", why)
	}
	if len(given) > 0 {
		r.o.Logger.Error("rows are quarantined", "table", r.o.Names.String(), "rows", len(given), "ids", some(given), "error", last)
	}
}

func some(ids []string) []string { return slices.Clip(ids[:min(len(ids), maxTold)]) }
