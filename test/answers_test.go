package test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEveryStatus: 2xx acks, 425 requeues uncounted, everything else retries, whatever number the app makes up.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	want := map[string]string{"425": "requeue"}
	for _, s := range []string{"200", "201", "202", "203", "204", "205", "206", "208", "226", "299"} {
		want[s] = "ack"
	}
	for _, s := range []string{
		"300", "301", "302", "303", "304", "305", "306", "307", "308", "400", "401", "402", "403", "404", "405", "406", "407", "408", "409", "410",
		"411", "412", "413", "414", "415", "416", "417", "418", "421", "422", "423", "424", "426", "428", "429", "431", "451", "499",
		"500", "501", "502", "503", "504", "505", "507", "508", "511", "599", "600", "799", "999", "000", "099",
	} {
		want[s] = "retry"
	}
	raw := newRawApp(t, func(c net.Conn, r *rawRequest) bool {
		if r.nth > 1 {
			return say(c, ok200)
		}
		if r.id == "204" || r.id == "304" {
			return say(c, "HTTP/1.1 "+r.id+" X\r\n\r\n")
		}
		return sayStatus(c, r.id)
	})
	sc := newScene(t).with("APP_URL", raw.url(), "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms").seed()
	for id := range want {
		sc.send(id)
	}
	s := sc.run()
	for id, outcome := range want {
		eventually(t, "settlement of the message answered "+id, func() bool { return len(s.log.outcomes(id)) > 0 })
		if got := s.log.outcomes(id)[0]; got != outcome {
			t.Errorf("%s: %s, want %s", id, got, outcome)
			continue
		}
		if outcome == "ack" {
			continue
		}
		again := raw.await(id, 2)[1]
		if wantCount := map[string]string{"retry": "1", "requeue": "0"}[outcome]; again.value("Amqp-Retry-Count") != wantCount {
			t.Errorf("%s: second receipt has Amqp-Retry-Count %s, want %s", id, again.value("Amqp-Retry-Count"), wantCount)
		}
	}
	sc.settledAll(s, 0)
	for id, outcome := range want {
		if n := len(raw.seen(id)); outcome == "ack" && n != 1 {
			t.Errorf("%s: %d receipts, want 1", id, n)
		}
	}
}

// TestDispositionSteersOneMessage, against the status.
func TestDispositionSteersOneMessage(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms").seed()
	cases := []struct {
		status            int
		word, want, count string
	}{
		{500, "ack", "ack", ""}, {302, "ack", "ack", ""}, {200, "retry", "retry", "1"}, {404, "retry", "retry", "1"}, {200, "requeue", "requeue", "0"},
		{503, "requeue", "requeue", "0"}, {200, "park", "park", ""}, {500, "park", "park", ""}, {200, "discard", "discard", ""}, {500, "discard", "discard", ""},
		{200, "explode", "ack", ""}, {500, "explode", "retry", "1"}, {200, "", "ack", ""},
	}
	id := func(i int) string { return fmt.Sprintf("d%d-%d-%s", i, cases[i].status, cases[i].word) }
	for i, c := range cases {
		first := answer{status: c.status, header: map[string]string{"Amqp-Disposition": c.word, "Amqp-Reason": "because of test"}}
		sc.app.on(id(i), first, status(200))
		sc.send(id(i))
	}
	s := sc.run()
	parked := 0
	for i, c := range cases {
		eventually(t, "settlement of "+id(i), func() bool { return len(s.log.outcomes(id(i))) > 0 })
		if got := s.log.outcomes(id(i))[0]; got != c.want {
			t.Errorf("%d with Amqp-Disposition %q: %s, want %s", c.status, c.word, got, c.want)
		}
		if c.count != "" {
			if got := sc.app.await(id(i), 2)[1].header.Get("Amqp-Retry-Count"); got != c.count {
				t.Errorf("%s: Amqp-Retry-Count %s after it, want %s", id(i), got, c.count)
			}
		}
		if c.want == "park" {
			parked++
		}
	}
	if !s.log.mentions("explode") && !s.log.mentions("disposition", "unknown") {
		t.Error("no warning about an unknown Amqp-Disposition")
	}
	if n := s.metric("sidecar_messages_settled_total", `outcome="discard"`); n != 2 {
		t.Errorf("metric counts %v discarded, want 2", n)
	}
	for _, d := range sc.take(sc.dlq(), parked) {
		if d.Headers["x-final-reason"] != "disposition" || d.Headers["x-final-detail"] != "because of test" {
			t.Errorf("parked %s with reason %v, detail %v", d.MessageId, d.Headers["x-final-reason"], d.Headers["x-final-detail"])
		}
		if want, _ := strconv.Atoi(strings.Split(d.MessageId, "-")[1]); asInt(d.Headers["x-final-status-code"]) != want {
			t.Errorf("parked %s with x-final-status-code %v", d.MessageId, d.Headers["x-final-status-code"])
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

func TestParkOnStatus(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("PARK_ON_STATUS", "400,413,422").seed()
	for _, code := range []int{400, 413, 422} {
		sc.app.on(strconv.Itoa(code), status(code))
	}
	sc.app.on("404", status(404), status(200))
	sc.send("400", "413", "422", "404")
	s := sc.run()
	for _, d := range sc.take(sc.dlq(), 3) {
		if d.Headers["x-final-reason"] != "park_status" || strconv.Itoa(asInt(d.Headers["x-final-status-code"])) != d.MessageId || asInt(d.Headers["x-final-retry-count"]) != 0 {
			t.Errorf("%s parked with %v", d.MessageId, d.Headers)
		}
		if n := len(sc.app.seen(d.MessageId)); n != 1 {
			t.Errorf("%s was tried %d times", d.MessageId, n)
		}
	}
	sc.app.await("404", 2)
	sc.settledAll(s, 0)
}

// TestProblemDetailsAreKept and long or hostile reasons are cut.
func TestProblemDetailsAreKept(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("PARK_ON_STATUS", "422").with("PARK_ANSWER", "0").seed()
	problem := `{"type":"https://example.com/stock","title":"Out of stock","detail":"Item 7","status":422,"secret":"canary-body"}`
	sc.app.on("problem", answer{status: 422, header: map[string]string{"Content-Type": "application/problem+json"}, body: problem})
	sc.app.on("long", answer{status: 422, header: map[string]string{"Amqp-Reason": strings.Repeat("r", 5000)}})
	sc.app.on("body", answer{status: 422, header: map[string]string{"Content-Type": "text/html"}, body: "<script>canary-body</script>"})
	sc.app.on("bad", answer{status: 422, header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"type":7,"title":`})
	sc.send("problem", "long", "body", "bad")
	s := sc.run()
	for _, d := range sc.take(sc.dlq(), 4) {
		switch d.MessageId {
		case "problem":
			for k, want := range map[string]string{"type": "https://example.com/stock", "title": "Out of stock", "detail": "Item 7"} {
				if got := d.Headers["x-final-problem-"+k]; got != want {
					t.Errorf("x-final-problem-%s is %v, want %q", k, got, want)
				}
			}
		case "long":
			if got, _ := d.Headers["x-final-detail"].(string); got == "" || len(got) > 256 || strings.Trim(got, "r") != "" {
				t.Errorf("x-final-detail of a 5000-byte Amqp-Reason: %d bytes", len(got))
			}
		}
		if strings.Contains(fmt.Sprint(d.Headers), "canary-body") {
			t.Errorf("%s: the app's answer went into the headers: %v", d.MessageId, d.Headers)
		}
	}
	if s.log.mentions("canary-body") {
		t.Error("the log holds the app's answer")
	}
	sc.settledAll(s, 0)
}

func TestMaxBody(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_BODY", "64KiB").seed()
	edge, over := message("edge"), message("over")
	edge.Body, over.Body = make([]byte, 64<<10), make([]byte, 64<<10+1)
	sc.sendMessage(over, edge, message("small"))
	s := sc.run()
	sc.app.awaitAll("edge", "small")
	d := sc.take(sc.dlq(), 1)[0]
	if d.MessageId != "over" || len(d.Body) != len(over.Body) {
		t.Errorf("parked %q with %d bytes", d.MessageId, len(d.Body))
	}
	h := d.Headers
	if h["x-final-reason"] != "too_large" || h["x-final-error"] == nil || h["x-final-status-code"] != nil {
		t.Errorf("parked with reason %v, error %v, status %v", h["x-final-reason"], h["x-final-error"], h["x-final-status-code"])
	}
	if len(sc.app.seen("over")) > 0 {
		t.Error("a message over SIDECAR_MAX_BODY was POSTed")
	}
	sc.settledAll(s, 0)
}

// TestRetryAfterOn425 sets the sleep; the requeue is not earlier.
func TestRetryAfterOn425(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "260ms", "RETRY_AFTER_MAX", "2s").seed()
	for id, after := range map[string]string{"one": "1", "capped": "86400", "bad": "1e99", "negative": "-1", "plain": ""} {
		h := map[string]string{}
		if after != "" {
			h["Retry-After"] = after
		}
		sc.app.on(id, answer{status: 425, header: h}, status(200))
		sc.send(id)
	}
	s := sc.run()
	for id, least := range map[string]time.Duration{"one": time.Second, "capped": 2 * time.Second, "bad": 250 * time.Millisecond, "negative": 250 * time.Millisecond, "plain": 250 * time.Millisecond} {
		list := sc.app.await(id, 2)
		if gap := list[1].at.Sub(list[0].at); gap < least {
			t.Errorf("%s: back after %v, must not be before %v", id, gap, least)
		}
		if list[1].header.Get("Amqp-Retry-Count") != "0" || list[1].header.Get("Amqp-Redelivered") != "true" {
			t.Errorf("%s: returned with Amqp-Retry-Count %s, Amqp-Redelivered %s", id, list[1].header.Get("Amqp-Retry-Count"), list[1].header.Get("Amqp-Redelivered"))
		}
	}
	sc.settledAll(s, 0)
}

// TestRetryAfterWithoutTiersPausesTheReplica: nothing is POSTed before the time that the app asked for.
func TestRetryAfterWithoutTiersPausesTheReplica(t *testing.T) {
	t.Parallel()
	for _, code := range []int{429, 503} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("CONCURRENCY", "1", "PREFETCH", "1").seed()
			date := time.Now().Add(3 * time.Second).UTC().Truncate(time.Second)
			after := map[int]string{429: "2", 503: date.Format("Mon, 02 Jan 2006 15:04:05 GMT")}[code]
			sc.app.on("busy", answer{status: code, header: map[string]string{"Retry-After": after}}, status(200))
			sc.send("busy")
			s := sc.run()
			asked := sc.app.await("busy", 1)[0].at
			eventually(t, "settlement of the message", func() bool { return len(s.log.outcomes("busy")) > 0 })
			sc.send("other")
			for _, d := range []*delivery{sc.app.await("other", 1)[0], sc.app.await("busy", 2)[1]} {
				if gap := d.at.Sub(asked); code == 429 && gap < 1900*time.Millisecond || code == 503 && d.at.Before(date) {
					t.Errorf("%q was POSTed %v after the app had asked for peace (%s), at %v", d.id, gap, after, d.at.UTC())
				}
			}
			if n := sc.app.seen("busy")[1].number("Amqp-Retry-Count"); n != 1 {
				t.Errorf("the message returned with Amqp-Retry-Count %d, want 1", n)
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestRetryAfterWithTiers: the message takes the tier that covers it, the others go on.
func TestRetryAfterWithTiers(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RETRY_DELAYS", "300ms,2s,20s", "RETRY_DELAY", "")
	tiers := []string{sc.retryQueue() + ".300ms", sc.retryQueue() + ".2s", sc.retryQueue() + ".20s"}
	sc.app.on("busy", answer{status: 429, header: map[string]string{"Retry-After": "1"}}, status(200))
	s := sc.run()
	sc.send("busy")
	sc.app.await("busy", 1)
	sc.send("other")
	sc.app.await("other", 1)
	list := sc.app.await("busy", 2)
	if gap := list[1].at.Sub(list[0].at); gap < 2*time.Second {
		t.Errorf("back after %v: not through the 2 s tier", gap)
	}
	if !sc.app.seen("other")[0].at.Before(list[1].at) {
		t.Error("another message waited too")
	}
	if n := list[1].number("Amqp-Retry-Count"); n != 1 {
		t.Errorf("Amqp-Retry-Count %d, want 1", n)
	}
	if slices.ContainsFunc(tiers, func(q string) bool { return sc.ready(q) < 0 }) {
		t.Errorf("not all tier queues exist: %v", tiers)
	}
	sc.settledAll(s, 0)
}
