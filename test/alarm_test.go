package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestMemoryAlarm: a connection that has published under an alarm is no longer read, acks included, so the one that
// consumes must never publish.
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	gate := make(chan struct{})
	sc.app.on("bad", answer{status: 500, gate: gate})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	good := numbered("good", 30)
	sc.send("bad")
	sc.send(good...)
	s := sc.run()
	sc.app.await("bad", 1)

	calm := node.Alarm()
	close(gate)
	s.awaitAcked(good...)
	eventually(t, "the blocked publisher or the failed park in the metrics", func() bool {
		return s.metric("sidecar_amqp_blocked") == 1 || s.metric("sidecar_park_failures_total") > 0
	})
	stays(t, time.Second, "up", func() bool { return !s.ended() })
	calm()
	if d := sc.take(sc.dlq(), 1)[0]; d.MessageId != "bad" {
		t.Errorf("parked %q", d.MessageId)
	}
	eventually(t, "sidecar_amqp_blocked is 0", func() bool { return s.metric("sidecar_amqp_blocked") == 0 })
	sc.settledAll(s, 0)
}

// TestConnectionsClosedByAnOperator: both connections, one after the other.
func TestConnectionsClosedByAnOperator(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	sc.app.on("bad", status(500))
	s := sc.run()
	closed := 0
	for _, row := range brokertest.Rows(t, "connections", "pid", "client_properties") {
		if strings.Contains(fmt.Sprint(row["client_properties"]), sc.service) {
			brokertest.Eval(t, fmt.Sprintf("rabbit_networking:close_connection(list_to_pid(%q), \"operator\")", row["pid"]))
			closed++
		}
	}
	if closed == 0 {
		t.Error("no connection of the broker's list names the service")
	}
	sc.send("bad", "good")
	sc.app.awaitAll("bad", "good")
	sc.take(sc.dlq(), 1)
	sc.settledAll(s, 0)
}

// TestAlarmIsShownWhileIdle: a sidecar that publishes nothing shows an alarm, also one that only publishes, one that is
// started in the alarm, and one that loses its connections in it; and it shows the end.
func TestAlarmIsShownWhileIdle(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := publishing(t)
	sidecars := []*sidecar{sc.run(), start(t, sc.envWith("SIDECAR_CONSUME", "off")).awaitReady()}
	calm := node.Alarm()
	sidecars = append(sidecars, start(t, sc.env))
	shown := func(s *sidecar) bool {
		_, body := s.get(s.control, "/status")
		return strings.Contains(body, `"blocked":{"since":"`) && strings.Contains(body, `"reason":"low on memory"`) &&
			s.metric("sidecar_amqp_blocked") == 1
	}
	refuses := func(s *sidecar) bool {
		_, body := s.get(s.admin, "/readyz")
		return strings.Contains(body, `{"name":"publish_endpoint","ok":false,"detail":"blocked"}`)
	}
	for _, s := range sidecars {
		eventually(t, "the alarm is shown", func() bool { return shown(s) })
		eventually(t, "the publish endpoint refuses messages", func() bool { return refuses(s) })
		s.refused("/publish/default/k", "x", nil, http.StatusServiceUnavailable, "blocked")
		eventually(t, "ready in the alarm", s.ready)
	}
	for _, row := range brokertest.Rows(t, "connections", "pid", "client_properties") {
		if strings.Contains(fmt.Sprint(row["client_properties"]), sc.service) {
			brokertest.Eval(t, fmt.Sprintf("exit(list_to_pid(%q), kill)", row["pid"]))
		}
	}
	for _, s := range sidecars {
		eventually(t, "the alarm is shown after a reconnect", func() bool {
			return s.metric("sidecar_amqp_reconnects_total") > 0 && s.ready() && shown(s) && refuses(s)
		})
	}
	calm()
	for _, s := range sidecars {
		eventually(t, "the end of the alarm is shown", func() bool {
			_, body := s.get(s.control, "/status")
			return !strings.Contains(body, "blocked") && s.metric("sidecar_amqp_blocked") == 0
		})
		for _, msg := range []string{"publishing blocked", "publishing unblocked"} {
			if n := len(s.log.find(func(e entry) bool { return e.text("msg") == msg })); n != 1 {
				t.Errorf("%d lines %q", n, msg)
			}
		}
		eventually(t, "messages are published again", func() bool {
			status, _, _ := s.send("/publish/default/k", "x", nil)
			return status == http.StatusNoContent
		})
	}
}

// TestRedriveInAnAlarm: a redrive that the alarm refuses is known to the sidecar.
func TestRedriveInAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	sc.app.on("bad", status(500))
	s := sc.run()
	sc.send("bad")
	eventually(t, "a parked message", func() bool { return brokertest.Ready(t, sc.url, sc.dlq()) == 1 })
	calm := node.Alarm()
	c := s.api("")
	code, _, body := c.ask(http.MethodPost, "/dlq/redrive", `{"all":true}`)
	if code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	eventually(t, "the redrive is refused", func() bool {
		_, _, body := c.ask(http.MethodGet, "/dlq/operations", "")
		return strings.Contains(body, "blocked by the broker's resource alarm")
	})
	code, _, body = c.ask(http.MethodGet, "/status", "")
	if code != http.StatusOK || !strings.Contains(body, `"blocked":{"since":"`) {
		t.Errorf("%d %s", code, body)
	}
	eventually(t, "sidecar_amqp_blocked is 1", func() bool { return s.metric("sidecar_amqp_blocked") == 1 })
	calm()
	eventually(t, "sidecar_amqp_blocked is 0", func() bool { return s.metric("sidecar_amqp_blocked") == 0 })
}
