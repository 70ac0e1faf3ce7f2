package test

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// scene is what most tests need: a service, an app, and the environment that joins them, in the test's virtual host.
type scene struct {
	*broker
	t               testing.TB
	service, prefix string
	app             *app
	env             map[string]string
}

// newScene uses a service name of its own: a test may have several.
func newScene(t testing.TB) *scene {
	t.Helper()
	prefix := "bb" + token()
	sc := &scene{broker: dialBroker(t), t: t, service: prefix + "-svc", prefix: prefix, app: newApp(t)}
	sc.env = map[string]string{
		"SIDECAR_SERVICE":      sc.service,
		"SIDECAR_AMQP_URL":     brokertest.URL(t),
		"SIDECAR_APP_URL":      sc.app.url(),
		"SIDECAR_RETRY_DELAY":  "300ms",
		"SIDECAR_ADMIN_ADDR":   "127.0.0.1:0",
		"SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
		"SIDECAR_LOG_LEVEL":    "debug",
	}
	return sc
}

// token is a short random hexadecimal name part.
func token() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func (sc *scene) exchange() string      { return sc.prefix + ".main-exchange" }
func (sc *scene) queue() string         { return sc.prefix + ".queue." + sc.service }
func (sc *scene) retryExchange() string { return sc.prefix + ".retry-exchange." + sc.service }
func (sc *scene) retryQueue() string    { return sc.prefix + ".retry-queue." + sc.service }
func (sc *scene) dlq() string           { return sc.prefix + ".dlq." + sc.service }

// with sets variables of the environment; pairs of name (without the prefix SIDECAR_) and value.
func (sc *scene) with(pairs ...string) *scene {
	for i := 0; i < len(pairs); i += 2 {
		sc.env["SIDECAR_"+pairs[i]] = pairs[i+1]
	}
	return sc
}

// run starts the sidecar and waits until it consumes.
func (sc *scene) run() *sidecar {
	sc.t.Helper()
	return start(sc.t, sc.env).awaitReady()
}

// envWith is the scene's environment with more variables, full names.
func (sc *scene) envWith(pairs ...string) map[string]string {
	env := maps.Clone(sc.env)
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return env
}

// running is the environment for a subcommand that talks to a sidecar that already runs.
func (sc *scene) running(s *sidecar) map[string]string {
	return sc.envWith("SIDECAR_ADMIN_ADDR", s.admin, "SIDECAR_CONTROL_ADDR", s.control)
}

// seed declares the objects as another service following the same document would.
func (sc *scene) seed() *scene { return sc.seedTTL(300) }

func (sc *scene) seedTTL(ttl int) *scene {
	sc.t.Helper()
	must.Do(sc.t, sc.declareExchange(sc.exchange(), "fanout"))
	must.Do(sc.t, sc.declareExchange(sc.retryExchange(), "direct"))
	must.Do(sc.t, sc.declare(sc.queue(), serviceArgs(sc)))
	must.Do(sc.t, sc.declare(sc.retryQueue(), waitArgs(sc, ttl)))
	must.Do(sc.t, sc.declare(sc.dlq(), nil))
	sc.bind(sc.queue(), "", sc.exchange())
	sc.bind(sc.retryQueue(), "retry", sc.retryExchange())
	return sc
}

func serviceArgs(sc *scene) amqp.Table {
	return amqp.Table{"x-dead-letter-exchange": sc.retryExchange(), "x-dead-letter-routing-key": "retry"}
}

func waitArgs(sc *scene, ttl int) amqp.Table {
	return amqp.Table{"x-message-ttl": int32(ttl), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": sc.queue()}
}

// message is a persistent message with that id.
func message(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(`{"id":"` + id + `"}`)}
}

func messages(ids ...string) []amqp.Publishing {
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = message(id)
	}
	return list
}

// send publishes to the main exchange with the routing key `order.created`.
func (sc *scene) send(ids ...string) {
	sc.t.Helper()
	sc.publish(sc.exchange(), "order.created", messages(ids...)...)
}

func (sc *scene) sendMessage(m ...amqp.Publishing) {
	sc.t.Helper()
	sc.publish(sc.exchange(), "order.created", m...)
}

// warm sends messages until the sidecar dares to have n in flight: it meets a fresh app with one at a time.
func (sc *scene) warm(s *sidecar, n int) {
	sc.t.Helper()
	ids := numbered("warm", 4*n)
	for _, id := range ids {
		sc.app.on(id, status(200))
	}
	sc.send(ids...)
	s.awaitAcked(ids...)
	eventually(sc.t, "full concurrency", func() bool { return s.metric("sidecar_concurrency_limit") >= float64(n) })
}

// settledAll waits until the broker holds nothing of the service but n parked messages: the sidecar is stopped, so that
// what it held unacked is counted too.
func (sc *scene) settledAll(s *sidecar, parked int) {
	sc.t.Helper()
	s.stop()
	if n := sc.ready(sc.queue()); n > 0 {
		sc.t.Errorf("%d messages left in the service queue", n)
	}
	if n := sc.ready(sc.retryQueue()); n > 0 {
		sc.t.Errorf("%d messages left in the retry queue", n)
	}
	if n := max(sc.ready(sc.dlq()), 0); n != parked {
		sc.t.Errorf("%d messages in the DLQ, want %d", n, parked)
	}
}

// preset is one topology, shrunk to quick delays, and where its parked messages end.
type preset struct {
	name          string
	env           []string
	exchange, key string
	queue, dlq    string
	queues        []string // in which retries wait
}

// presets are topologies with names that begin with p.
func presets(p string) []preset {
	return []preset{
		{
			"fanout", []string{"MAX_RETRIES", "2", "RETRY_DELAY", "300ms"}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", []string{p + ".retry-queue." + p + "-svc"},
		}, {
			"topic-tiers", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", ""}, p + ".events", "svc.created",
			p + ".svc", p + ".events.dlq",
			[]string{p + ".svc.retry.300ms", p + ".svc.retry.500ms", p + ".svc.retry.700ms"},
		}, {
			"delay-ladder", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "BINDINGS", p + ".events:order.#"}, p + ".events", "order.created",
			p + ".svc", p + ".svc.dlq", []string{p + ".svc.delay_300ms", p + ".svc.delay_500ms", p + ".svc.delay_700ms"},
		}, {
			"dead-letter", []string{"RETRY_DELAY", "300ms", "QUEUE", p + ".orders", "BINDINGS", p + ":order.*"}, p, "order.created",
			p + ".orders", p + ".orders.dlq", []string{p + ".orders.retry"},
		},
	}
}
