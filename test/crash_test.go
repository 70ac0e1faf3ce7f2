package test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// guarded is a scene that counts crashes, with a journal of its own.
func guarded(t *testing.T, limit int, pairs ...string) *scene {
	t.Helper()
	return newScene(t).with("CRASH_LIMIT", strconv.Itoa(limit), "CRASH_DIR", t.TempDir()).with(pairs...)
}

// never is the gate of a handler that hangs until the test ends.
func never(t testing.TB) answer {
	t.Helper()
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	return answer{gate: gate}
}

// awaitCounted waits until the crashes of so many messages are counted and their originals acked. The copy of a message,
// with the count, may be POSTed before: a sidecar that is killed then leaves both, and the app gets it once more.
func (s *sidecar) awaitCounted(suspects int) {
	s.t.Helper()
	eventually(s.t, "the suspects are replaced by copies with a count", func() bool {
		return s.metric("sidecar_messages_settled_total", `outcome="requeue"`) == float64(suspects)
	})
}

// TestMessageThatKillsTheSidecar is parked after the limit, without another try; moved back, it has one. Those that were in
// flight with it, and those behind it, are not parked.
func TestMessageThatKillsTheSidecar(t *testing.T) {
	t.Parallel()
	sc := guarded(t, 3, "CONCURRENCY", "4")
	hang := never(t)
	sc.app.on("bad", hang)
	near := numbered("near", 3)
	for _, id := range near {
		sc.app.on(id, hang, status(200))
	}
	s := sc.run()
	sc.warm(s, 4)
	sc.send(append(near, "bad")...)
	sc.app.awaitAll(near...)
	behind := numbered("behind", 20)
	sc.send(behind...)
	for i, suspects := range []int{0, 4, 1} {
		d := sc.app.await("bad", i+1)[i]
		if d.Number("Amqp-Retry-Count") != 0 || d.Header.Get("Amqp-Header-X-Retry-Crashes") != "" {
			t.Errorf("receipt %d: %v", i+1, d.Header)
		}
		s.awaitCounted(suspects)
		s.kill()
		s = sc.run()
	}
	d := sc.take(sc.dlq(), 1)[0]
	h := d.Headers
	if d.MessageId != "bad" || string(d.Body) != string(message("bad").Body) || h["x-final-reason"] != "crash" ||
		!strings.HasPrefix(fmt.Sprint(h["x-final-error"]), "crash: ") || h["x-final-status-code"] != nil || h["x-final-at"] == nil ||
		asInt(h["x-final-retry-count"]) != 0 || asInt(h["x-retry-crashes"]) != 3 || h["x-original-queue"] != sc.queue() ||
		h["x-original-exchange"] != sc.exchange() || h["x-original-routing-key"] != "order.created" {
		t.Errorf("parked %s: %v", d.MessageId, h)
	}
	sc.app.awaitAll(append(near, behind...)...)
	for _, id := range near {
		sc.app.await(id, 2)
	}
	if n := len(sc.app.Seen("bad")); n != 3 {
		t.Errorf("the message was POSTed %d times, want 3", n)
	}
	eventually(t, "the metric counts the park", func() bool {
		return s.metric("sidecar_messages_settled_total", `outcome="park"`, `reason="crash"`) == 1
	})
	m := message("bad")
	m.Headers = h
	sc.publish("", sc.queue(), m)
	sc.app.await("bad", 4)
	s.kill()
	s = sc.run()
	if d := sc.take(sc.dlq(), 1)[0]; d.Headers["x-final-reason"] != "crash" || asInt(d.Headers["x-retry-crashes"]) != 4 {
		t.Errorf("parked again: %v", d.Headers)
	}
	sc.settledAll(s, 0)
}

// thrice ends the sidecar three times while the app has a message, which it then takes.
func (sc *scene) thrice(end func(*sidecar)) *sidecar {
	hang := never(sc.t)
	sc.app.on("m", hang, hang, hang, status(200))
	s := sc.run()
	sc.send("m")
	for i := range 3 {
		sc.app.await("m", i+1)
		end(s)
		s = sc.run()
	}
	s.awaitOutcome("m", "ack")
	return s
}

// TestRedeliveredAfterACrash: without a limit the app gets the message as redelivered, and the attempt is not counted.
// Nothing is parked for a crash, and nothing is written.
func TestRedeliveredAfterACrash(t *testing.T) {
	t.Parallel()
	sc := guarded(t, 0, "MAX_RETRIES", "1")
	s := sc.thrice((*sidecar).kill)
	for i, d := range sc.app.Seen("m") {
		if d.Header.Get("Amqp-Redelivered") != fmt.Sprint(i > 0) || d.Number("Amqp-Retry-Count") != 0 {
			t.Errorf("receipt %d: %v", i+1, d.Header)
		}
	}
	if s.log.mentions(`"msg":"crash"`) {
		t.Error("the log counts crashes")
	}
	sc.settledAll(s, 0)
	if files, err := os.ReadDir(sc.env["SIDECAR_CRASH_DIR"]); err != nil || len(files) > 0 {
		t.Errorf("files: %v, %v", files, err)
	}
}

// TestStopsAreNoCrashes, not even one whose grace is over while the app still has the message.
func TestStopsAreNoCrashes(t *testing.T) {
	t.Parallel()
	sc := guarded(t, 1, "SHUTDOWN_GRACE", "100ms")
	s := sc.thrice((*sidecar).stop)
	sc.settledAll(s, 0)
}

// TestMessageThatKillsTheApp: the app is a process that really ends, is away for a while and returns. Its killer is
// parked after the limit, long before its retries are used up; messages in flight beside it are acked.
func TestMessageThatKillsTheApp(t *testing.T) {
	t.Parallel()
	sc := guarded(t, 3, "CONCURRENCY", "4", "APP_HEALTH_INTERVAL", "100ms")
	app := withAppProcess(t, sc)
	deaths := app.supervise()
	s := sc.run()
	first, second := numbered("slow-a", 30), numbered("slow-b", 30)
	sc.send(append(append(first, "bad"), second...)...)
	d := sc.take(sc.dlq(), 1)[0]
	h := d.Headers
	if d.MessageId != "bad" || h["x-final-reason"] != "crash" || asInt(h["x-retry-crashes"]) < 3 || h["x-final-status-code"] != nil ||
		!strings.HasPrefix(fmt.Sprint(h["x-final-error"]), "reset") || asInt(h["x-final-retry-count"]) != asInt(h["x-retry-crashes"])-1 {
		t.Errorf("parked %s: %v", d.MessageId, h)
	}
	s.awaitAcked(append(first, second...)...)
	sc.settledAll(s, 0)
	if n := int(deaths.Load()); n != app.got.Of("bad") || n != asInt(h["x-retry-crashes"]) {
		t.Errorf("%d deaths, %d receipts of the message, %v counted", n, app.got.Of("bad"), h["x-retry-crashes"])
	}
}
