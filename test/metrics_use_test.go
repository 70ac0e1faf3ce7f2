package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/prometheus"
)

// TestMetricsInUse: a real Prometheus scrapes sidecars to which everything happens. Every query of the dashboard has an
// answer, and each alert that needs messages fires, with the names of what it is about. test/console TestStates has the
// alerts about the state of a sidecar.
func TestMetricsInUse(t *testing.T) {
	t.Parallel()
	p := prometheus.Start(t, prometheus.Impatient(t, alertsFile))
	stormy, slow := loop(t, p), backlog(t, p)
	delaying(t, p)
	batching(t, p)
	o := newOutgoing(t, p)
	o.use()
	m := newMixed(t, p)
	m.load("messages are parked", func() bool { return p.Firing("MessagesParked", "reason", "park_status", "queue", m.sc.queue()) })
	m.load("more and more of them", func() bool {
		return p.Firing("MessagesParked", "reason", "max_retries", "namespace", "shop") && p.Firing("DLQGrowing", "queue", m.sc.dlq())
	})
	m.redrive()
	p.Fires("RetryStorm", "queue", stormy)
	p.Fires("TopologyLoop", "queue", stormy)
	p.Fires("OldMessages", "queue", slow)
	o.suffer()
	checkMetricsPage(t, m.s)
	checkDashboard(t, p)
}

// mixed is a sidecar that gets a bit of everything, with the labels of Kubernetes.
type mixed struct {
	t     *testing.T
	sc    *scene
	s     *sidecar
	round int
}

func newMixed(t *testing.T, p *prometheus.Server) *mixed {
	m := &mixed{t: t, sc: newScene(t).seed()}
	m.sc.with("MAX_RETRIES", "2", "PARK_ON_STATUS", "422",
		"REQUEUE_DELAY_MAX", "300ms", "CONCURRENCY", "4")
	m.sc.app.otherwise(m.answer)
	m.s = m.sc.run()
	p.Scrape(m.s.admin, map[string]string{"job": "shop/billing", "namespace": "shop", "pod": "billing-1", "container": "sidecar"})
	m.s.listen()
	return m
}

// listen reads the events. While a client does, the queues are checked every two seconds instead of every fifteen.
func (s *sidecar) listen() *sidecar {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.control+"/events", nil))(s.t)
	res := must.Get(http.DefaultTransport.RoundTrip(req))(s.t)
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(io.Discard, res.Body) }()
	s.t.Cleanup(func() { stop(); <-read; _ = res.Body.Close() })
	return s
}

// answer goes by the first part of the id.
func (m *mixed) answer(d *delivery) answer {
	kind, _, _ := strings.Cut(d.ID, "-")
	switch {
	case kind == "bad":
		return status(500)
	case kind == "unfit":
		return status(422)
	case kind == "waste":
		return answer{status: 200, header: map[string]string{"Amqp-Disposition": "discard"}}
	case kind == "early" && d.Nth == 1:
		return status(425)
	case kind == "retry" && d.Nth == 1:
		return status(503)
	}
	return status(200)
}

// load publishes some of each kind again and again until cond holds.
func (m *mixed) load(what string, cond func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("waited %v for: %s", patience, what)
		}
		m.round++
		ids := numbered(fmt.Sprintf("ok-%d", m.round), 10)
		for _, kind := range []string{"bad", "unfit", "waste", "early", "retry"} {
			ids = append(ids, fmt.Sprintf("%s-%d", kind, m.round))
		}
		list := messages(ids...)
		for i := range list {
			list[i].Timestamp = time.Now()
		}
		list[0].Headers = amqp.Table{"long": strings.Repeat("x", 9<<10)} // is left out
		m.sc.sendMessage(list...)
	}
}

// redrive moves what is parked back, by the API and by the command.
func (m *mixed) redrive() {
	m.t.Helper()
	m.sc.app.otherwise(func(*delivery) answer { return status(200) })
	c := m.s.api("")
	if op := c.over(c.begin("/dlq/redrive", `{"all": true, "limit": 3}`).ID); op.Progress.Done != 3 {
		m.t.Errorf("%+v", op)
	}
	m.sc.cli(0, "redrive", "--all", "--limit", "2")
	m.sc.app.otherwise(m.answer)
}

// loop is a topology in which a script takes messages out of the retry queue and publishes them again, without what
// counts their retries. It returns the name of the queue.
func loop(t *testing.T, p *prometheus.Server) string {
	sc := newScene(t).seedTTL(60_000).with("MAX_RETRIES", "2", "RETRY_DELAY", "1m")
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	ch := dialBroker(t).channel()
	waiting := must.Get(ch.Consume(sc.retryQueue(), "", true, false, false, false, nil))(t)
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for d := range waiting {
			again := amqp.Publishing{MessageId: d.MessageId, Body: d.Body}
			if err := ch.PublishWithContext(ctx, "", sc.queue(), false, false, again); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { stop(); _ = ch.Close(); <-over })
	s := sc.run()
	p.Scrape(s.admin, map[string]string{"job": "shop/stormy", "namespace": "shop", "pod": "stormy-1"})
	sc.send(numbered("m", 5)...)
	return sc.queue()
}

// backlog is an app that is too slow for what waits, all of it hours old.
func backlog(t *testing.T, p *prometheus.Server) string {
	sc := newScene(t).seed().with("CONCURRENCY", "1", "PREFETCH", "1")
	sc.app.otherwise(func(*delivery) answer {
		time.Sleep(200 * time.Millisecond)
		return status(200)
	})
	list := messages(numbered("m", 500)...)
	for i := range list {
		list[i].Timestamp = time.Now().Add(-2 * time.Hour)
	}
	sc.sendMessage(list...)
	s := sc.run()
	p.Scrape(s.admin, map[string]string{"job": "shop/slow", "namespace": "shop", "pod": "slow-1"})
	return sc.queue()
}

// delaying is a sidecar whose queue delays messages itself. A broker before RabbitMQ 4.3 has no such queue.
func delaying(t *testing.T, p *prometheus.Server) {
	sc := newScene(t).with("TOPOLOGY", "native")
	p.Scrape(start(t, sc.env).admin, nil)
}

// batching is a sidecar that POSTs several messages at once.
func batching(t *testing.T, p *prometheus.Server) {
	sc := newScene(t).seed().with("BATCH_SIZE", "10")
	s := sc.run()
	p.Scrape(s.admin, nil)
	eventually(t, "a sample without a POST", func() bool {
		return len(p.Now(`sidecar_batch_messages_count{queue="`+sc.queue()+`"} == 0`)) == 1
	})
	sc.send(numbered("m", 50)...)
}

// outgoing is a sidecar whose app publishes, over HTTP and through an outbox, behind a link that can break. Beside it is
// one that only sends what is in the same outbox.
type outgoing struct {
	t      testing.TB
	p      *prometheus.Server
	sc     *scene
	db     *postgrestest.Database
	broker *brokertest.Proxy
	addr   string // where the app publishes
}

func newOutgoing(t testing.TB, p *prometheus.Server) *outgoing {
	o := &outgoing{t: t, p: p, sc: newScene(t), db: postgrestest.New(t), addr: freeAddr(t)}
	o.broker = linked(t, o.sc)
	o.sc.with("PUBLISH_ADDR", o.addr,
		"OUTBOX_DSN", o.db.DSN, "OUTBOX_POLL_INTERVAL", "100ms")
	o.sc.app.otherwise(func(*delivery) answer { return status(200) })
	if code := launch(t, o.sc.env, "outbox", "migrate").exitCode(); code != 0 {
		t.Fatalf("outbox migrate: exit code %d", code)
	}
	s := o.sc.run()
	p.Scrape(s.admin, map[string]string{"job": "shop/outgoing", "namespace": "shop", "pod": "outgoing-1"})
	sender := start(t, o.sc.envWith("SIDECAR_CONSUME", "off", "SIDECAR_PUBLISH_ADDR", "127.0.0.1:0")).awaitReady()
	p.Scrape(sender.admin, map[string]string{"job": "shop/sender", "namespace": "shop", "pod": "sender-1"})
	eventually(t, "it is scraped", func() bool { return len(p.Now(`sidecar_outbox_connected{pod="outgoing-1"} == 1`)) == 1 })
	return o
}

// insert writes a row that has been due for that long, and has one attempt left.
func (o *outgoing) insert(exchange, key string, due time.Duration) {
	o.t.Helper()
	o.db.Exec(`INSERT INTO outbox (exchange, routing_key, body, send_after, attempts) VALUES ($1, $2, $3, now() - $4::interval, 9)`,
		exchange, key, []byte(`{}`), due.String())
}

// post publishes by HTTP and returns the status.
func (o *outgoing) post() int {
	o.t.Helper()
	res := must.Get(plain.Post("http://"+o.addr+"/publish/default/order.created", "application/json", strings.NewReader(`{}`)))(o.t)
	_ = res.Body.Close()
	return res.StatusCode
}

// use is the usual day, with a row that no queue takes and one for a queue that is full.
func (o *outgoing) use() {
	o.t.Helper()
	full := o.sc.prefix + ".full"
	must.Do(o.t, o.sc.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}))
	o.insert("amq.default", full, 0)
	o.insert("amq.default", full, 0)
	o.insert("amq.default", o.sc.prefix+".absent", 0)
	eventually(o.t, "messages and rows are published", func() bool {
		if code := o.post(); code != http.StatusNoContent {
			o.t.Fatalf("status %d", code)
		}
		o.insert(o.sc.exchange(), "order.created", 0)
		return len(o.p.Now(`sum(rate(sidecar_publish_requests_total{result="published"}[4s])) > 0
			and sum(rate(sidecar_outbox_rows_total{result="sent"}[4s])) > 0`)) == 1
	})
}

// suffer makes every alert fire that is about the app's own messages, but for the one about the database.
func (o *outgoing) suffer() {
	o.t.Helper()
	about, sender := []string{"namespace", "shop", "queue", o.sc.queue()}, []string{"namespace", "shop", "job", "shop/sender", "queue", ""}
	o.p.Fires("OutboxQuarantined", about...)
	o.p.Fires("OutboxQuarantined", sender...)
	o.p.Fires("OutboxNacked", "namespace", "shop") // of whichever relay took the row

	o.broker.Refuse()
	o.insert(o.sc.exchange(), "order.created", time.Hour)
	eventually(o.t, "the alert PublishFailing fires", func() bool {
		o.post()
		return o.p.Firing("PublishFailing", append(about, "exchange", "default")...)
	})
	o.p.Fires("OutboxLagging", about...)
	o.p.Fires("BrokerDisconnected", sender...)
	o.broker.Restore(o.t)
}
