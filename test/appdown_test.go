package test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"sidecar/internal/apptest"
)

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

// TestHealthPath decides when there is one. The pause and its line name the path, and what the app answered to it.
func TestHealthPath(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_HEALTH_PATH", "/h?token=secret", "APP_HEALTH_INTERVAL", "100ms").seed()
	var healthy atomic.Bool
	sc.app.Health(0) // a request as any other
	sc.app.Otherwise(func(r *delivery) apptest.Reply {
		if healthy.Load() {
			return status(204).reply()
		}
		if r.Method == http.MethodPost {
			t.Error("a message was POSTed although the health check fails")
		}
		return apptest.Say(apptest.Status(301, "Location: https://login.example/in?next=secret"))
	})
	sc.send("m")
	s := start(t, sc.env)
	detail := `"detail":"the app answered 301 and Location https://login.example/in to GET ` + sc.app.url() + `h, not 2xx"`
	eventually(t, "the detail", func() bool {
		_, body := s.get(s.control, "/status")
		return strings.Contains(body, detail)
	})
	eventually(t, "the line", func() bool {
		return len(s.log.find(func(e entry) bool {
			return e.is("paused") && e.text("reason") == "app_down" && e.text("url") == sc.app.url()+"h" && e["status"] == 301.0
		})) > 0
	})
	if s.log.mentions("secret") {
		t.Error("the log has the query of the path or of the location")
	}
	healthy.Store(true)
	s.awaitAcked("m")
	sc.settledAll(s.awaitReady(), 0)
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
