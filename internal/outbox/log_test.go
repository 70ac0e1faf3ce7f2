package outbox

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

// TestTrace: with tracing the message carries the trace that the row brought, with a span of the relay's; without it
// carries what the row brought.
func TestTrace(t *testing.T) {
	t.Parallel()
	const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	on := telemetry.NewTracing(telemetry.TracingOptions{Logger: slog.New(slog.DiscardHandler), Endpoint: "http://127.0.0.1:1/v1/traces"})
	t.Cleanup(func() { _ = on.Shutdown(context.Background()) }) // no collector takes the spans
	r := newRig(t)
	for _, tracing := range []*telemetry.Tracing{nil, on} {
		r.db.Exec(`INSERT INTO outbox (routing_key, body, headers) VALUES ('k', 'x', jsonb_build_object('traceparent', $1::text, 'tracestate', 'a=b', 'baggage', 'c=d'))`, parent)
		_, stop := r.start(func(o *Options) { o.Tracing = tracing })
		r.settled()
		stop()
		h := r.take()[0].Headers
		got, _ := h["traceparent"].(string)
		if !strings.Contains(got, traceID) || (tracing == nil) != (got == parent) || h["tracestate"] != "a=b" || h["baggage"] != "c=d" {
			t.Errorf("%v", h)
		}
	}
}

// TestMetrics: each row is counted by its outcome, and figures of the database are absent without it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.MaxAttempts = 2
	r.insert("m", 3)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, exchange) VALUES ('k', 'x', '')`) // no such queue
	r.db.Exec(`INSERT INTO outbox (routing_key, body, send_after) VALUES ('k', 'x', now() + interval '1 day')`)
	_, stop := r.start()
	r.eventually("one is quarantined", func() bool { return r.rows(`quarantined_at IS NOT NULL`) == "1" })
	r.eventually("all are counted", func() bool { return r.read()["quarantined"] == 1 })
	for name, want := range map[string]float64{"sent": 3, "failed": 1, "quarantined": 1, "nacked": 0, "unknown": 0, "sidecar_outbox_connected": 1} {
		if got, found := r.read()[name]; got != want || !found {
			t.Errorf("%s is %v, %t, want %v", name, got, found, want)
		}
	}
	// Measured once, when the relay had begun.
	if all := r.read(); all["sidecar_outbox_pending_rows"] != 5 || all["sidecar_outbox_quarantined_rows"] != 0 || all["sidecar_outbox_lag_seconds"] <= 0 {
		t.Errorf("%v", all)
	}
	stop()
	all := r.read()
	if _, found := all["sidecar_outbox_pending_rows"]; found || all["sidecar_outbox_connected"] != 0 {
		t.Errorf("after the end: %v", all)
	}
}

// read returns the values of all metrics of the relay started last, those with a label by its value.
func (r *rig) read() map[string]float64 {
	r.t.Helper()
	families := must.Get(r.metrics.Gather())(r.t)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			if len(m.GetLabel()) > 0 {
				name = m.GetLabel()[0].GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

// lines are those of the log with this event: the error of each, and the ids with it.
func (r *rig) lines(event string) map[string][]string {
	r.t.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(r.log.String()) {
		var l struct {
			Msg, Error, Table string
			Rows              int
			IDs               []string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		if l.Msg != event {
			continue
		}
		if l.Table != "outbox" || l.Rows < len(l.IDs) || found[l.Error] != nil {
			r.t.Errorf("%s", line)
		}
		found[l.Error] = l.IDs
	}
	return found
}

// TestEachErrorHasALine: rows share a line of the log when, and only when, they have failed in the same way, but for
// the rest of a round that fails in many.
func TestEachErrorHasALine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.MaxAttempts = 1
	r.db.Exec(`INSERT INTO outbox (id, routing_key, body, exchange, properties) VALUES
		(1, 'nosuch', 'x', '', NULL), (2, 'k', 'x', NULL, '{"colour": "red"}'), (3, 'nosuch', 'x', '', NULL)`)
	_, stop := r.start()
	r.settled()
	stop()
	got := r.lines("outbox rows quarantined")
	if ids := got[`publish to exchange "" with key "nosuch": returned by exchange "" for key "nosuch": 312 NO_ROUTE`]; !slices.Equal(ids, []string{"1", "3"}) || len(got) != 2 {
		t.Errorf("%q", got)
	}
	for text, ids := range got {
		if strings.Contains(text, "colour") != slices.Equal(ids, []string{"2"}) {
			t.Errorf("%q: %v", text, ids)
		}
	}
	r.db.Exec(`INSERT INTO outbox (id, routing_key, body, exchange) SELECT n, 'nosuch ' || n, 'x', '' FROM generate_series(10, 39) n`)
	r.log = &brokertest.Log{}
	_, stop = r.start()
	r.settled()
	stop()
	got = r.lines("outbox rows quarantined")
	if rest := got["other errors: see last_error of each row"]; len(got) != maxReasons+1 || len(rest) != maxLogged {
		t.Errorf("%d lines: %q", len(got), got)
	}
}
