package publish

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

// rig is a server on a broker, with a queue bound to a topic exchange by every key.
type rig struct {
	testing.TB
	url, exchange, queue string
	addr                 string
	ch                   *amqp.Channel
	server               *Server
	registry             *prometheus.Registry
	memory               *budget.Account
	log                  *brokertest.Log
	stop                 func()
}

// start serves until the test ends. via is the URL that the server connects to; "" is the broker's.
func start(tb testing.TB, via string, change func(*Options)) *rig {
	tb.Helper()
	r := &rig{TB: tb, url: brokertest.URL(tb), registry: prometheus.NewRegistry(), log: new(brokertest.Log)}
	r.exchange = brokertest.Name(tb, "x")
	r.queue = brokertest.Queue(tb, r.url, brokertest.Name(tb, "q"), nil)
	r.ch = brokertest.Channel(tb, r.url)
	must.Do(tb, r.ch.ExchangeDeclare(r.exchange, "topic", true, false, false, false, nil))
	r.bind(r.queue, "#")
	if via == "" {
		via = r.url
	}
	publisher := broker.NewPublisher(broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{via}, nil }, Heartbeat: 10 * time.Second, Name: tb.Name(), Logger: telemetry.NewLogger(r.log, "debug", "json"),
		Registerer: r.registry,
	}))
	o := Options{
		Addr: "127.0.0.1:0", Exchanges: map[string]string{"default": r.exchange, "direct": ""}, RoutingKeys: []string{"*"},
		MaxBody: 16 << 20, MaxInflight: 256, Timeout: 10 * time.Second, Publisher: publisher, Registerer: r.registry,
		Logger: telemetry.NewLogger(r.log, "debug", "json"),
	}
	o.Memory = budget.New(160 << 20).Account(budget.Publish)
	if change != nil {
		change(&o)
	}
	r.memory = o.Memory
	r.server = New(o)
	addr := must.Get(r.server.Listen())(tb)
	r.addr = addr
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = publisher.Run(ctx) })
	running.Go(func() {
		if err := r.server.Serve(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		within, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		r.server.Shutdown(within)
		cancel()
		running.Wait()
	})
	tb.Cleanup(func() {
		r.stop()
		brokertest.Eventually(tb, time.Minute, "all memory is given back", func() bool { return r.memory.Held() == 0 })
	})
	brokertest.Eventually(tb, time.Minute, "connected", publisher.Connected)
	return r
}

func (r *rig) bind(queue, key string) {
	r.Helper()
	must.Do(r, r.ch.QueueBind(queue, key, r.exchange, false, nil))
}

// reply is an answer that was read to its end.
type reply struct {
	*http.Response
	body string
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a request. headers are names and values.
func (r *rig) post(path, body string, headers ...string) reply {
	r.Helper()
	return r.do(http.MethodPost, path, bytes.NewReader([]byte(body)), headers...)
}

func (r *rig) do(method, path string, body io.Reader, headers ...string) reply {
	r.Helper()
	q := must.Get(http.NewRequest(method, "http://"+r.addr, body))(r)
	q.URL = &url.URL{Scheme: "http", Host: r.addr, Opaque: path}
	for i := 0; i < len(headers); i += 2 {
		q.Header[headers[i]] = append(q.Header[headers[i]], headers[i+1])
	}
	a := must.Get(client.Do(q))(r)
	defer a.Body.Close()
	b := must.Get(io.ReadAll(a.Body))(r)
	return reply{a, string(b)}
}

func (r *rig) get() amqp.Delivery {
	r.Helper()
	return brokertest.Get(r, r.url, r.queue, time.Minute)
}

var newTrace = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-00$`)

// own returns the headers of a message but for the traceparent that a message without one gets.
func (r *rig) own(d *amqp.Delivery) amqp.Table {
	r.Helper()
	if id, _ := d.Headers["traceparent"].(string); !newTrace.MatchString(id) {
		r.Errorf("traceparent %q", id)
	}
	delete(d.Headers, "traceparent")
	return d.Headers
}

func dial(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c := must.Get(net.Dial("tcp", addr))(tb)
	tb.Cleanup(func() { c.Close() })
	return c
}
