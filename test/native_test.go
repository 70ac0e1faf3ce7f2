package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// nativeScene has a queue of RabbitMQ 4.3 that delays retries itself, three of them.
func nativeScene(t testing.TB) *scene {
	t.Helper()
	brokertest.Delaying(t)
	return newScene(t).with("TOPOLOGY", "native", "RETRY_DELAY", "200ms", "MAX_RETRIES", "3")
}

// counts are the retry counts of a message at its attempts.
func (sc *scene) counts(id string) (list []int) {
	for _, d := range sc.app.Seen(id) {
		list = append(list, d.Number("Amqp-Retry-Count"))
	}
	return list
}

// wantParked takes n messages from the dead-letter queue, which must have used up their three retries.
func (sc *scene) wantParked(n int) []amqp.Delivery {
	sc.t.Helper()
	all := sc.take(sc.dlq(), n)
	for _, d := range all {
		if d.Headers["x-final-reason"] != "max_retries" || asInt(d.Headers["x-final-retry-count"]) != 3 {
			sc.t.Errorf("%q was parked with %v", d.MessageId, d.Headers)
		}
	}
	return all
}

// TestNativeAttempts: a message that always fails is tried four times, and once more when it is redriven or moved by
// hand, whatever count of deliveries its headers hold. Attempts of a killed process are given back.
func TestNativeAttempts(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t)
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	sc.send("bad")
	inQueue := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("parked after %d attempts", n), func() bool {
			return len(sc.app.Seen("bad")) == n && sc.ready(sc.dlq()) == 1
		})
	}
	inQueue(4)
	for i, d := range sc.app.Seen("bad") {
		if last := d.Header.Get("Amqp-Last-Attempt") == "true"; last != (i == 3) {
			t.Errorf("attempt %d says last %v", i, last)
		}
	}
	sc.acted("redrive", "--all")
	inQueue(5)
	sc.acted("redrive", "--all", "--reset")
	inQueue(9)
	if got := sc.counts("bad"); !slices.Equal(got, []int{0, 1, 2, 3, 3, 0, 1, 2, 3}) {
		t.Errorf("retry counts %v", got)
	}
	parked := sc.wantParked(1)
	for i, count := range []any{nil, int64(1<<31 - 1)} {
		m := message(fmt.Sprintf("moved-%d", i))
		m.Headers = parked[0].Headers
		if count != nil {
			m.Headers["x-delivery-count"] = count
		}
		sc.publish("", sc.queue(), m)
		sc.wantParked(1)
		if got := sc.counts(m.MessageId); !slices.Equal(got, []int{3}) {
			t.Errorf("x-delivery-count %v, moved by hand: retry counts %v", count, got)
		}
	}
	sc.send("killed")
	sc.app.await("killed", 2)
	s.kill()
	before := len(sc.app.Seen("killed"))
	s = sc.run()
	sc.wantParked(1)
	if got := sc.counts("killed"); !slices.Equal(got[before:], []int{0, 1, 2, 3}) {
		t.Errorf("retry counts %v, %d of them before the kill", got, before)
	}
	sc.settledAll(s, 0)
}

// TestNativeOnAnOlderBroker: check says why nothing would be declared or consumed.
func TestNativeOnAnOlderBroker(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY", "native")
	version := brokertest.Version(t)
	if strings.HasPrefix(version, "4.3.") {
		version = "4.2.9"
		d := brokertest.NewDisguise(t, brokertest.URL(t))
		d.As(version)
		sc.with("AMQP_URL", d.URL(t, brokertest.URL(t)))
	}
	r := command(t, sc.env, "check")
	if r.code != 1 || !strings.Contains(r.stdout, "RabbitMQ 4.3 or newer") || !strings.Contains(r.stdout, version) {
		t.Errorf("check: exit %d\n%s", r.code, r.all())
	}
	r = command(t, sc.env, "check", "--json")
	if r.code != 1 || !strings.Contains(r.stdout, `"problem":"version"`) || !strings.Contains(r.stdout, `"found":"`+version+`"`) {
		t.Errorf("check --json: exit %d\n%s", r.code, r.all())
	}
}
