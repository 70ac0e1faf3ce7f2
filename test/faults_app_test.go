package test

import (
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestAppSuspended: an app that is suspended still has its port open, and answers nothing. The sidecar must find out by its
// timeouts, stop taking messages before the retries of all are used up, and go on by itself.
func TestAppSuspended(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_TIMEOUT", "500ms", "MAX_RETRIES", "3").seed()
	s := sc.run()
	warm := numbered("warm", 40)
	sc.send(warm...)
	s.awaitAcked(warm...)
	resumed := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: resumed} })
	ids := numbered("m", 60)
	sc.send(ids...)
	eventually(t, "a pause for the app's sake", func() bool {
		return s.metric("sidecar_paused", `reason="breaker"`)+s.metric("sidecar_paused", `reason="app_down"`) > 0
	})
	// Longer than four attempts and their delays take: a sidecar that went on would park now.
	stays(t, 4*time.Second, "up, and nothing parked", func() bool { return !s.ended() && sc.ready(sc.dlq()) == 0 })
	close(resumed)
	brokertest.Eventually(t, 90*time.Second, "everything acked", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(s.log.outcomes(id), "ack") })
	})
	sc.settledAll(s, 0)
}

// TestAppKilledInTheHandler: whether the app did its work it cannot be known, so the attempt counts and the message
// comes again. What was waiting meanwhile is not charged.
func TestAppKilledInTheHandler(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "4").seed()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	sc.app.on("hang", answer{gate: never}, status(200))
	s := sc.run()
	sc.send("hang")
	sc.app.await("hang", 1)
	sc.app.Shut()
	waiting := numbered("later", 20)
	sc.send(waiting...)
	eventually(t, "the app found down", func() bool { return s.metric("sidecar_app_up") == 0 })
	sc.app.Up()
	s.awaitOutcome("hang", "ack")
	list := slices.DeleteFunc(s.log.outcomes("hang"), func(o string) bool { return o == "release" }) // its retry may find the app down
	if n := len(sc.app.Seen("hang")); !slices.Equal(list, []string{"retry", "ack"}) || n != 2 {
		t.Errorf("settled as %v after %d receipts", list, n)
	}
	s.awaitAcked(waiting...)
	for _, id := range waiting {
		if last := s.log.settled(id); last[len(last)-1]["retry_count"] != 0.0 {
			t.Errorf("%s was charged for the app's death: %v", id, s.log.outcomes(id))
		}
	}
	sc.settledAll(s, 0)
}

// TestAppDownAtStart: nothing is consumed, nothing counted, and the process is fine.
func TestAppDownAtStart(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.app.Shut()
	ids := numbered("m", 20)
	sc.send(ids...)
	s := start(t, sc.env)
	eventually(t, "GET /livez is 200", func() bool { status, _ := s.get(s.admin, "/livez"); return status == 200 })
	eventually(t, "a line that says that the app does not answer", func() bool {
		return len(s.log.find(func(e entry) bool {
			return e.text("msg") == "paused" && e.text("reason") == "app_down" && e.text("url") == sc.app.url() && e.text("error") != ""
		})) == 1
	})
	if sc.ready(sc.queue()) != 20 {
		t.Error("messages were taken")
	}
	if n := s.metric("sidecar_app_up"); n != 0 {
		t.Errorf("sidecar_app_up is %v with the app down", n)
	}
	sc.app.Up()
	sc.app.awaitAll(ids...)
	eventually(t, "sidecar_app_up is 1", func() bool { return s.metric("sidecar_app_up") == 1 })
	sc.settledAll(s.awaitReady(), 0)
	checkUncounted(t, sc, ids)
}

func checkUncounted(t *testing.T, sc *scene, ids []string) {
	t.Helper()
	for _, id := range ids {
		list := sc.app.Seen(id)
		if len(list) != 1 || list[0].Number("Amqp-Retry-Count") != 0 {
			t.Errorf("%s: %d receipts, Amqp-Retry-Count %s", id, len(list), list[0].Header.Get("Amqp-Retry-Count"))
		}
	}
}

// TestAppDownCountsWhenAskedTo: 004's Exception row to the letter.
func TestAppDownCountsWhenAskedTo(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_DOWN", "retry", "MAX_RETRIES", "1").seed()
	s := sc.run()
	sc.app.Shut()
	sc.send("m")
	d := sc.take(sc.dlq(), 1)[0]
	if text, _ := d.Headers["x-final-error"].(string); text == "" || d.Headers["x-final-status-code"] != nil {
		t.Errorf("x-final-error %v, x-final-status-code %v", d.Headers["x-final-error"], d.Headers["x-final-status-code"])
	}
	if asInt(d.Headers["x-final-retry-count"]) != 1 || d.Headers["x-final-reason"] != "max_retries" {
		t.Errorf("parked with %v", d.Headers)
	}
	sc.settledAll(s, 0)
}
