package test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
)

// smallTables is a header array of n tables with one entry each.
func smallTables(n int) []any {
	a := make([]any, n)
	for i := range a {
		a[i] = amqp.Table{"": nil}
	}
	return a
}

// TestCostlyHeaders: a few small messages whose headers are large when they are decoded.
func TestCostlyHeaders(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50").seed()
	ids := numbered("costly", 24)
	for _, id := range ids {
		m := message(id)
		m.Headers, m.Body = amqp.Table{"a": smallTables(8000), "b": smallTables(8000)}, []byte("x")
		sc.sendMessage(m)
	}
	sc.send("innocent")
	s := sc.confined(plainLimit)
	s.awaitAcked(append(ids, "innocent")...)
	s.alive()
	sc.settledAll(s.sidecar, 0)
}

// largest is the largest body that the broker takes by default, and the budget that is smaller than it.
func largest(t *testing.T) (size int, memory string) {
	t.Helper()
	if strings.HasPrefix(brokertest.Version(t), "3.") {
		return 120 << 20, ""
	}
	return 15 << 20, "8MiB"
}

// TestAMessageLargerThanAllMemory: it is parked whole, and the one behind it is handled. Without a place for its body
// it is held, which the status says.
func TestAMessageLargerThanAllMemory(t *testing.T) {
	t.Parallel()
	size, memory := largest(t)
	for name, dir := range map[string]string{"parked": "/tmp", "held": "/proc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MEMORY", memory, "SPOOL_DIR", dir, "MAX_BODY", "1MiB").seed()
			alone(t)
			m := message("large")
			m.Body = bytes.Repeat([]byte("0123456789abcdef"), size>>4)
			sc.sendMessage(m)
			sc.send("innocent")
			s := sc.confined(plainLimit)
			s.awaitAcked("innocent")
			if name == "held" {
				eventually(t, "the status says so", func() bool {
					_, body := s.get(s.control, "/status")
					return strings.Contains(body, fmt.Sprintf("there is no memory for a message of %d bytes (SIDECAR_MEMORY)", size))
				})
				s.alive()
				s.stop()
				if n := sc.ready(sc.queue()); n != 1 {
					t.Errorf("%d messages are in the queue", n)
				}
				return
			}
			s.awaitOutcome("large", "park")
			copies := sc.ready(sc.dlq())
			if unknown := len(s.log.find(func(e entry) bool { return e.is("publish failed") })); copies < 1 || copies > 1+unknown {
				t.Errorf("it is parked %d times, and %d confirms did not come in time", copies, unknown)
			}
			for range copies {
				d := brokertest.Get(t, brokertest.URL(t), sc.dlq(), patience)
				if !bytes.Equal(d.Body, m.Body) || d.Headers["x-final-reason"] != "too_large" {
					t.Errorf("%d bytes are parked, with the reason %v", len(d.Body), d.Headers["x-final-reason"])
				}
			}
			s.alive()
			sc.settledAll(s.sidecar, 0)
		})
	}
}

// TestLargeMessagesAndASlowApp: more than memory holds at a time. None is lost or comes twice, and the connection
// stays.
func TestLargeMessagesAndASlowApp(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	alone(t)
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	load := largeLoad{10, 15}
	sc.putLarge(sc.exchange(), "k", load)
	sc.send("innocent")
	s := sc.confined(plainLimit)
	eventually(t, "memory is used up", func() bool { return s.metric("sidecar_memory_bytes", `of="deliveries"`) > 40<<20 })
	close(gate)
	s.awaitAcked(append(numbered("large-15", load.count), "innocent")...)
	if n := sc.app.total(); n != load.count+1 {
		t.Errorf("%d attempts for %d messages", n, load.count+1)
	}
	for _, cause := range []string{"network", "timeout", "broker", "channel"} {
		if n := s.metric("sidecar_amqp_reconnects_total", `cause="`+cause+`"`); n != 0 {
			t.Errorf("%v reconnects by %s", n, cause)
		}
	}
	s.alive()
	sc.settledAll(s.sidecar, 0)
}

// TestARowWithCostlyHeaders: 18 MB of headers that PostgreSQL stores in 726 KB. The row fails alone.
func TestARowWithCostlyHeaders(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(outboxTable)
	db.Exec(`INSERT INTO outbox (routing_key, body, headers)
		SELECT 'k', 'x', jsonb_build_object('h', jsonb_agg(jsonb_build_object('k', '', 'l', repeat('x', 20)))) FROM generate_series(1, 450000)`)
	id := db.Value(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'innocent') RETURNING message_id`)
	sc := newScene(t).with("OUTBOX_DSN", db.DSN).seed()
	alone(t)
	s := sc.confined(outboxLimit)
	sc.app.await(id, 1)
	eventually(t, "the row is marked", func() bool {
		return strings.Contains(db.Value(`SELECT COALESCE(max(last_error), '') FROM outbox WHERE attempts > 0`), "headers")
	})
	s.alive()
}
