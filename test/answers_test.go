package test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// settlement is an answer of the app, and how the sidecar settles the message that gets it first.
type settlement struct {
	first   answer
	outcome string
	count   string // the retry count of the second attempt; "" without one
	final   map[string]any
}

// settlements are the answers of TestAnswers, by the id of the message. SIDECAR_RESPONSE_DIALECT is dapr.
func settlements() map[string]settlement {
	says := func(code int, word string) answer {
		return answer{status: code, header: map[string]string{"Amqp-Disposition": word, "Amqp-Reason": "because of test"}}
	}
	body := func(text string) answer { return answer{status: 200, body: text} }
	disposed := map[string]any{"x-final-reason": "disposition", "x-final-detail": "because of test"}
	all := map[string]settlement{
		"too early":   {first: answer{status: 425, header: map[string]string{"Retry-After": "86400"}}, outcome: "requeue", count: "0"},
		"500 ack":     {first: says(500, "ack"), outcome: "ack"},
		"200 retry":   {first: says(200, "retry"), outcome: "retry", count: "1"},
		"503 requeue": {first: says(503, "requeue"), outcome: "requeue", count: "0"},
		"200 park":    {first: says(200, "park"), outcome: "park", final: disposed},
		"500 discard": {first: says(500, "discard"), outcome: "discard"},
		"200 explode": {first: says(200, "explode"), outcome: "ack"},
		"500 explode": {first: says(500, "explode"), outcome: "retry", count: "1"},
		"not wanted":  {first: status(413), outcome: "park", final: map[string]any{"x-final-reason": "park_status", "x-final-problem-type": nil}},
		"dapr RETRY":  {first: body(`{"status":"RETRY"}`), outcome: "retry", count: "1"},
		"dapr DROP": {first: body(`{"status":"DROP"}`), outcome: "park",
			final: map[string]any{"x-final-reason": "disposition", "x-final-detail": "dapr: DROP"}},
		"problem": {
			first: answer{status: 422, header: map[string]string{"Content-Type": "application/problem+json"},
				body: `{"type":"https://example.com/stock","title":"Out of stock","detail":"Item 7","status":422,"secret":"canary-body"}`},
			outcome: "park",
			final: map[string]any{"x-final-reason": "park_status", "x-final-problem-type": "https://example.com/stock",
				"x-final-problem-title": "Out of stock", "x-final-problem-detail": "Item 7"},
		},
	}
	for code, outcome := range map[int]string{200: "ack", 204: "ack", 299: "ack", 302: "retry", 404: "retry", 500: "retry", 600: "retry", 999: "retry"} {
		all[strconv.Itoa(code)] = settlement{first: status(code), outcome: outcome, count: map[string]string{"retry": "1"}[outcome]}
	}
	return all
}

// TestAnswers: the status settles a message, unless the app says in a header or in a body of Dapr's what to do. What is
// parked has the reason.
func TestAnswers(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("REQUEUE_DELAY_MAX", "260ms", "RETRY_AFTER_MAX", "1s",
		"PARK_ON_STATUS", "413,422", "PARK_ANSWER", "0", "RESPONSE_DIALECT", "dapr").seed()
	all := settlements()
	parked := 0
	for id, c := range all {
		sc.app.on(id, c.first, status(200))
		sc.send(id)
		if c.outcome == "park" {
			parked++
		}
	}
	s := sc.run()
	for id, c := range all {
		eventually(t, "settlement of "+id, func() bool { return len(s.log.outcomes(id)) > 0 })
		if got := s.log.outcomes(id)[0]; got != c.outcome {
			t.Errorf("%s: %s, want %s", id, got, c.outcome)
		} else if c.count != "" {
			if got := sc.app.await(id, 2)[1].Header.Get("Amqp-Retry-Count"); got != c.count {
				t.Errorf("%s: Amqp-Retry-Count %s after it, want %s", id, got, c.count)
			}
		}
	}
	if !s.log.mentions("unknown_disposition") || s.log.mentions("canary-body") {
		t.Error("an unknown word must leave a warning, and a body nothing")
	}
	if n := s.metric("sidecar_messages_settled_total", `outcome="discard"`); n != 1 {
		t.Errorf("metric counts %v discarded, want 1", n)
	}
	for _, d := range sc.take(sc.dlq(), parked) {
		c := all[d.MessageId]
		for name, want := range c.final {
			if got := d.Headers[name]; got != want {
				t.Errorf("parked %s with %s %v, want %v", d.MessageId, name, got, want)
			}
		}
		if asInt(d.Headers["x-final-status-code"]) != c.first.status || strings.Contains(fmt.Sprint(d.Headers), "canary-body") {
			t.Errorf("parked %s with %v", d.MessageId, d.Headers)
		}
	}
	sc.settledAll(s, 0)
}

// asInt reads any AMQP integer, -1 for everything else.
func asInt(v any) int {
	switch v := v.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32:
		n, _ := strconv.Atoi(fmt.Sprint(v))
		return n
	}
	return -1
}
