package test

import (
	"fmt"
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
