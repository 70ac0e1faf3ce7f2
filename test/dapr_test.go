package test

import (
	"net"
	"strings"
	"testing"
)

// daprCases are answers of an app that was written for a Dapr subscription, and the outcomes of their messages with the
// dialect on and off.
var daprCases = map[string]daprCase{
	"success":   {answer{status: 200, body: `{"status":"SUCCESS"}`}, "ack", "ack", "", "success"},
	"empty":     {answer{status: 200}, "ack", "ack", "", "success"},
	"no-status": {answer{status: 201, body: `{"id":7}`}, "ack", "ack", "", "success"},
	"malformed": {answer{status: 200, body: `{"status":"RETRY"`}, "ack", "ack", "", "success"},
	"huge":      {answer{status: 200, body: `{"status":"SUCCESS"}` + strings.Repeat(" ", 1<<20)}, "ack", "ack", "", "success"},
	"huge-text": {answer{status: 200, body: strings.Repeat("p", 70000)}, "ack", "ack", "", "success"},
	"huge-then": {answer{status: 200, body: `{"status":"RETRY"}` + strings.Repeat(" ", 70000)}, "retry", "ack", "dapr: RETRY", "disposition"},
	"too-large": {answer{status: 200, body: `{"pad":"` + strings.Repeat("p", 70000) + `","status":"RETRY"}`}, "retry", "ack", "", "malformed"},
	"undecided": {answer{status: 200, body: strings.Repeat(" ", 70000) + `{"status":"DROP"}`}, "retry", "ack", "", "malformed"},
	"retry":     {answer{status: 200, body: `{"status":"RETRY"}`}, "retry", "ack", "dapr: RETRY", "disposition"},
	"unknown":   {answer{status: 200, body: `{"status":"canary-body"}`}, "retry", "ack", "dapr: unknown status", "disposition"},
	"drop":      {answer{status: 200, body: `{"status":"DROP"}`}, "park", "ack", "dapr: DROP", "disposition"},
	"header":    {answer{status: 200, body: `{"status":"DROP"}`, header: map[string]string{"Amqp-Disposition": "ack"}}, "ack", "ack", "", "disposition"},
	"500":       {answer{status: 500, body: `{"status":"SUCCESS"}`}, "retry", "retry", "", "server_error"},
	"404":       {answer{status: 404, body: `{"status":"SUCCESS"}`}, "retry", "retry", "", "client_error"},
}

type daprCase struct {
	first          answer
	on, off        string
	detail, reason string
}

// daprSettles gives every case to a sidecar, and returns it when each message has been settled as want says.
func daprSettles(t *testing.T, sc *scene, want func(daprCase) string) *sidecar {
	t.Helper()
	for id, c := range daprCases {
		sc.app.on(id, c.first, status(200))
		sc.send(id)
	}
	s := sc.run()
	for id, c := range daprCases {
		eventually(t, "settlement of "+id, func() bool { return len(s.log.outcomes(id)) > 0 })
		if got := s.log.outcomes(id)[0]; got != want(c) {
			t.Errorf("%s: %s, want %s", id, got, want(c))
		}
	}
	return s
}

func TestDaprDialect(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RESPONSE_DIALECT", "dapr").seed()
	s := daprSettles(t, sc, func(c daprCase) string { return c.on })
	for id, c := range daprCases {
		// With the dialect on, a 2xx that is malformed is one whose verdict was not read.
		if c.reason == "malformed" && !s.log.mentions(id, `"level":"WARN"`, "over 64 KiB") {
			t.Errorf("%s: no warning of the size", id)
		}
		if c.detail != "" && !s.log.mentions(id, c.detail) || !s.log.mentions(id, `"`+c.reason+`"`) {
			t.Errorf("%s: no line of the log with reason %s and detail %q", id, c.reason, c.detail)
		}
		if c.on == "retry" {
			if again := sc.app.await(id, 2)[1]; again.number("Amqp-Retry-Count") != 1 {
				t.Errorf("%s: second receipt has Amqp-Retry-Count %s", id, again.header.Get("Amqp-Retry-Count"))
			}
		}
	}
	parked := sc.take(sc.dlq(), 1)[0]
	if h := parked.Headers; parked.MessageId != "drop" || h["x-final-reason"] != "disposition" || h["x-final-detail"] != "dapr: DROP" || asInt(h["x-final-status-code"]) != 200 {
		t.Errorf("parked %s with %v", parked.MessageId, parked.Headers)
	}
	if !s.log.mentions("unknown", "unknown_disposition") || s.log.mentions("canary-body") {
		t.Error("an unknown status must leave a warning, and no part of the body")
	}
	sc.settledAll(s, 0)
}

func TestDaprDialectIsOffByDefault(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	s := daprSettles(t, sc, func(c daprCase) string { return c.off })
	for id, c := range daprCases {
		if c.off == "retry" {
			sc.app.await(id, 2)
		}
	}
	sc.settledAll(s, 0)
}

// A RETRY that never ends is parked as any other failure.
func TestDaprRetryEnds(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RESPONSE_DIALECT", "dapr", "MAX_RETRIES", "2").seed()
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, body: `{"status":"RETRY"}`} })
	sc.send("never")
	s := sc.run()
	if d := sc.take(sc.dlq(), 1)[0]; d.Headers["x-final-reason"] != "max_retries" || d.Headers["x-final-detail"] != "dapr: RETRY" || asInt(d.Headers["x-final-retry-count"]) != 2 {
		t.Errorf("parked with %v", d.Headers)
	}
	sc.app.await("never", 3)
	sc.settledAll(s, 0)
}

// An answer whose verdict lies behind what is read is never a success: its message ends among the parked ones, and says
// why.
func TestDaprAnswerTooLarge(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RESPONSE_DIALECT", "dapr", "MAX_RETRIES", "1").seed()
	sc.app.otherwise(func(*delivery) answer {
		return answer{status: 200, body: `{"pad":"` + strings.Repeat("p", 70000) + `","status":"RETRY"}`}
	})
	sc.send("large")
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	said, _ := d.Headers["x-final-error"].(string)
	if _, has := d.Headers["x-final-status-code"]; has || d.Headers["x-final-reason"] != "max_retries" || !strings.Contains(said, "too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB") {
		t.Errorf("parked with %v", d.Headers)
	}
	sc.app.await("large", 2)
	sc.settledAll(s, 0)
}

// The connection dies within the body that says the outcome of the message: it is not taken for a success.
func TestDaprBodyCutShort(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.nth > 1 {
			return say(c, ok200)
		}
		say(c, "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"status\":\"RE")
		return false
	})
	sc := newScene(t).with("APP_URL", raw.url(), "RESPONSE_DIALECT", "dapr").seed()
	sc.send("cut")
	s := sc.run()
	raw.await("cut", 2)
	eventually(t, "settlement", func() bool { return len(s.log.outcomes("cut")) == 2 })
	if got := s.log.outcomes("cut"); got[0] != "retry" || got[1] != "ack" || !s.log.mentions("cut", `"reset"`) {
		t.Errorf("outcomes %v", got)
	}
	sc.settledAll(s, 0)
}
