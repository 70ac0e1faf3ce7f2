package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	for _, d := range sc.app.seen(id) {
		list = append(list, d.number("Amqp-Retry-Count"))
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
// hand, whatever count of deliveries its headers hold.
func TestNativeAttempts(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t)
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	const equal = 4
	sc.send("bad")
	for range equal {
		sc.sendMessage(amqp.Publishing{Body: []byte("{}"), DeliveryMode: amqp.Persistent})
	}
	parked := sc.wantParked(equal + 1)
	if got := sc.counts("bad"); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("retry counts %v", got)
	}
	for i, d := range sc.app.seen("bad") {
		if last := d.header.Get("Amqp-Last-Attempt") == "true"; last != (i == 3) {
			t.Errorf("attempt %d says last %v", i, last)
		}
	}
	if n := sc.app.total(); n != 4*(equal+1) {
		t.Errorf("%d attempts of %d messages", n, equal+1)
	}
	for i, count := range []any{nil, int64(1<<31 - 1), int32(1)} {
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
	sc.settledAll(s, 0)
}

func TestNativeRedrive(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t)
	sc.app.on("bad", status(409))
	s := sc.run()
	sc.send("bad")
	inQueue := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("parked after %d attempts", n), func() bool {
			return len(sc.app.seen("bad")) == n && sc.ready(sc.dlq()) == 1
		})
	}
	inQueue(4)
	sc.acted("redrive", "--all")
	inQueue(5)
	sc.acted("redrive", "--all", "--reset")
	inQueue(9)
	if got := sc.counts("bad"); !slices.Equal(got, []int{0, 1, 2, 3, 3, 0, 1, 2, 3}) {
		t.Errorf("retry counts %v", got)
	}
	sc.wantParked(1)
	sc.settledAll(s, 0)
}

// TestNativeParksAtOnce: a status and a disposition need no attempts.
func TestNativeParksAtOnce(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t).with("PARK_ON_STATUS", "422", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms")
	park := answer{status: 409, header: map[string]string{"Amqp-Disposition": "park"}}
	sc.app.on("status", status(409), status(422))
	sc.app.on("disposition", park)
	sc.app.on("early", status(409), status(425), status(425), status(409), status(200))
	s := sc.run()
	sc.send("status", "disposition", "early")
	reasons := map[string]any{}
	for _, d := range sc.take(sc.dlq(), 2) {
		reasons[d.MessageId] = d.Headers["x-final-reason"]
	}
	if reasons["status"] != "park_status" || reasons["disposition"] != "disposition" {
		t.Errorf("parked for %v", reasons)
	}
	s.awaitAcked("early")
	if got := sc.counts("early"); !slices.Equal(got, []int{0, 1, 1, 1, 2}) {
		t.Errorf("retry counts of a message that came too early: %v", got)
	}
	sc.settledAll(s, 0)
}

// TestNativeStops: a pause and a drain give messages back uncounted. After a pause the count goes on; another process
// counts anew.
func TestNativeStops(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t).with("CONCURRENCY", "1", "PREFETCH", "10", "SHUTDOWN_GRACE", "100ms")
	gate := make(chan struct{})
	held := answer{status: 409, gate: gate}
	ids := numbered("m", 3)
	for _, id := range ids {
		sc.app.on(id, status(409), held)
	}
	s := sc.run()
	sc.send(ids...)
	eventually(t, "one is tried for the second time", func() bool { return sc.app.total() == len(ids)+1 })
	if code, said := s.post(s.control, "/pause"); code != 200 {
		t.Fatalf("pause: %d %s", code, said)
	}
	eventually(t, "the others are given back", func() bool { return sc.ready(sc.queue()) == len(ids)-1 })
	ch := sc.channel()
	for range len(ids) - 1 {
		d, ok, err := ch.Get(sc.queue(), false)
		if !ok || err != nil || asInt(d.Headers["x-delivery-count"]) != 1 {
			t.Errorf("%q has %v, %v: its reject is the only return that counts", d.MessageId, d.Headers, err)
		}
	}
	if err := ch.Nack(0, true, true); err != nil {
		t.Fatal(err)
	}
	_ = ch.Close()
	if code, said := s.post(s.control, "/resume"); code != 200 {
		t.Fatalf("resume: %d %s", code, said)
	}
	eventually(t, "a consumer", func() bool { return s.metric("sidecar_consumer_active") == 1 })
	s.stop() // during the second attempt of one
	close(gate)
	s = sc.run()
	sc.wantParked(len(ids))
	for _, id := range ids {
		if got := sc.counts(id); !slices.Equal(got[len(got)-4:], []int{0, 1, 2, 3}) || len(got) > 6 {
			t.Errorf("%s: retry counts %v", id, got)
		}
	}
	sc.settledAll(s, 0)
}

// TestNativeSidecarKilled: attempts of the killed process are given back.
func TestNativeSidecarKilled(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t)
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	ids := numbered("m", 10)
	sc.send(ids...)
	for _, id := range ids {
		sc.app.await(id, 2)
	}
	s.kill()
	before := map[string]int{}
	for _, id := range ids {
		before[id] = len(sc.app.seen(id))
	}
	s = sc.run()
	sc.wantParked(len(ids))
	for _, id := range ids {
		if got := sc.counts(id); !slices.Equal(got[before[id]:], []int{0, 1, 2, 3}) {
			t.Errorf("%s: retry counts %v, %d of them before the kill", id, got, before[id])
		}
	}
	sc.settledAll(s, 0)
}

// TestNativeBrokerKilled: attempts are kept, and those that the broker has not stored are given back.
func TestNativeBrokerKilled(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnDelayingNode(t)
	sc := newScene(t).with("TOPOLOGY", "native", "RETRY_DELAY", "300ms", "MAX_RETRIES", "3")
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	quorumOnDisk(t)
	ids := numbered("m", 100)
	sc.send(ids...)
	sc.app.await(ids[0], 2)
	node.Kill()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	node.Start()
	s.awaitReady()
	parked := map[string]bool{}
	for _, d := range sc.wantParked(len(ids)) {
		parked[d.MessageId] = true
	}
	for _, id := range ids {
		if got := sc.counts(id); !parked[id] || len(got) < 4 || !slices.IsSorted(got) || got[len(got)-1] != 3 {
			t.Errorf("%s: retry counts %v, parked %v", id, got, parked[id])
		}
	}
	sc.settledAll(s, 0)
}

// TestNativeDeliveryLimit: a message kills its consumer again and again. The broker parks it; its limit is at least 20
// returns, each of which is delayed.
func TestNativeDeliveryLimit(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t).with("MAX_RETRIES", "1", "RETRY_DELAY", "20ms").declared()
	sc.send("killer")
	returns := 0
	eventually(t, "the broker has parked it", func() bool {
		ch := sc.channel()
		if _, ok, err := ch.Get(sc.queue(), false); ok && err == nil {
			returns++
		}
		_ = ch.Close()
		return sc.ready(sc.dlq()) == 1
	})
	if returns < 20 {
		t.Errorf("parked after %d returns", returns)
	}
	if list := sc.listed(); len(list) != 1 || list[0].MessageID != "killer" || list[0].Reason != "broker:delivery_limit" {
		t.Errorf("%+v", list)
	}
	if r := sc.cli(0, "list"); !strings.Contains(r.stdout, "delivery_limit") {
		t.Errorf("%s", r.stdout)
	}
}

// TestNativeOnAnOlderBroker: nothing is declared or consumed, and each surface says why.
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
	var result struct {
		Findings []struct{ Problem, Found string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &result); err != nil || r.code != 1 || len(result.Findings) != 1 ||
		result.Findings[0].Problem != "version" || result.Findings[0].Found != version {
		t.Errorf("check --json: exit %d, %v\n%s", r.code, err, r.all())
	}
	s := start(t, sc.env)
	eventually(t, "a line about the version", func() bool {
		lines := s.log.find(func(e entry) bool { return e.is("topology does not fit") })
		return len(lines) == 1 && lines[0].text("problem") == "version" && lines[0].text("found") == version
	})
	eventually(t, "GET /readyz says why", func() bool {
		code, body := s.get(s.admin, "/readyz")
		return code == 503 && strings.Contains(body, "RabbitMQ 4.3") && strings.Contains(body, version)
	})
	if _, body := s.get(s.control, "/status"); !strings.Contains(body, `"problem":"version"`) || !strings.Contains(body, version) {
		t.Errorf("status: %s", body)
	}
	stays(t, 300*time.Millisecond, "nothing is declared", func() bool {
		return sc.ready(sc.queue()) < 0 && sc.ready(sc.dlq()) < 0
	})
	s.stop()
}
