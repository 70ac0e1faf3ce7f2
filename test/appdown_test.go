package test

import (
	"fmt"
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
	sc.app.down()
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
	sc.app.up()
	sc.app.awaitAll(ids...)
	eventually(t, "sidecar_app_up is 1", func() bool { return s.metric("sidecar_app_up") == 1 })
	sc.settledAll(s.awaitReady(), 0)
	checkUncounted(t, sc, ids)
}

// TestHealthPath decides when there is one. The pause and its line name the path, and what the app answered to it.
func TestHealthPath(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		apptest.Status(503): "the app answered 503 to GET %sh, not 2xx",
		apptest.Status(301, "Location: https://login.example/in?next=secret"): "the app answered 301 and Location https://login.example/in to GET %sh, not 2xx",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var healthy atomic.Bool
			app := apptest.Listen(t, func(c *apptest.Conn) {
				for {
					r, err := c.Next()
					if err != nil {
						return
					}
					if r.Method == http.MethodPost && !healthy.Load() {
						t.Error("a message was POSTed although the health check fails")
					}
					if healthy.Load() {
						c.Send(apptest.Status(204))
					} else {
						c.Send(answer)
					}
				}
			})
			sc := newScene(t).with("APP_URL", app.URL+"/in", "APP_HEALTH_PATH", "/h?token=secret", "APP_HEALTH_INTERVAL", "100ms").seed()
			sc.send("m")
			s := start(t, sc.env)
			url := app.URL + "/"
			eventually(t, "the detail", func() bool {
				_, body := s.get(s.control, "/status")
				return strings.Contains(body, `"detail":"`+fmt.Sprintf(want, url)+`"`)
			})
			eventually(t, "the line", func() bool {
				return len(s.log.find(func(e entry) bool {
					return e.text("msg") == "paused" && e.text("reason") == "app_down" && e.text("url") == url+"h" && !strings.Contains(e.text("location"), "secret") && e["status"] != nil
				})) > 0
			})
			healthy.Store(true)
			s.awaitAcked("m")
			sc.settledAll(s.awaitReady(), 0)
		})
	}
}

func checkUncounted(t *testing.T, sc *scene, ids []string) {
	t.Helper()
	for _, id := range ids {
		list := sc.app.seen(id)
		if len(list) != 1 || list[0].number("Amqp-Retry-Count") != 0 {
			t.Errorf("%s: %d receipts, Amqp-Retry-Count %s", id, len(list), list[0].header.Get("Amqp-Retry-Count"))
		}
	}
}

// TestAppDownCountsWhenAskedTo: 004's Exception row to the letter.
func TestAppDownCountsWhenAskedTo(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_DOWN", "retry", "MAX_RETRIES", "1").seed()
	s := sc.run()
	sc.app.down()
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
