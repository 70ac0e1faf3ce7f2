package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/prometheus"
)

// outgoing is a sidecar whose app publishes, over HTTP and through an outbox, behind a link that can break. Beside it is
// one that only sends what is in the same outbox.
type outgoing struct {
	t      testing.TB
	p      *prometheus.Server
	sc     *scene
	db     *postgrestest.Database
	broker *proxy
	addr   string // where the app publishes
}

func newOutgoing(t testing.TB, p *prometheus.Server) *outgoing {
	o := &outgoing{t: t, p: p, sc: newScene(t), db: postgrestest.New(t), addr: freeAddr(t)}
	o.broker = linked(t, o.sc)
	o.sc.with("PUBLISH_ADDR", o.addr,
		"OUTBOX_DSN", o.db.DSN, "OUTBOX_POLL_INTERVAL", "100ms", "OUTBOX_MAX_ATTEMPTS", "1")
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

// insert writes a row that has been due for that long.
func (o *outgoing) insert(exchange, key string, due time.Duration) {
	o.t.Helper()
	o.db.Exec(`INSERT INTO outbox (exchange, routing_key, body, send_after) VALUES ($1, $2, $3, now() - $4::interval)`,
		exchange, key, []byte(`{}`), due.String())
}

// post publishes by HTTP and returns the status.
func (o *outgoing) post() int {
	o.t.Helper()
	res, err := plain.Post("http://"+o.addr+"/publish/default/order.created", "application/json", strings.NewReader(`{}`))
	if err != nil {
		o.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// use is the usual day, with a row that no queue takes and one for a queue that is full.
func (o *outgoing) use() {
	o.t.Helper()
	full := o.sc.prefix + ".full"
	if err := o.sc.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}); err != nil {
		o.t.Fatal(err)
	}
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

	o.broker.down()
	o.insert(o.sc.exchange(), "order.created", time.Hour)
	eventually(o.t, "the alert PublishFailing fires", func() bool {
		o.post()
		return o.p.Firing("PublishFailing", append(about, "exchange", "default")...)
	})
	o.p.Fires("OutboxLagging", about...)
	o.p.Fires("BrokerDisconnected", sender...)
	o.broker.up()
}
