package publish

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/telemetry"
)

// rig is a server on a broker, with a queue bound to a topic exchange by every key.
type rig struct {
	testing.TB
	url, exchange, queue string
	addr                 string
	ch                   *amqp.Channel
	server               *Server
	registry             *prometheus.Registry
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
	r.declare()
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
	if change != nil {
		change(&o)
	}
	r.server = New(o)
	addr, err := r.server.Listen()
	if err != nil {
		tb.Fatal(err)
	}
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
		r.server.Wait()
	})
	tb.Cleanup(r.stop)
	brokertest.Eventually(tb, 30*time.Second, "connected", publisher.Connected)
	return r
}

func (r *rig) declare() {
	r.Helper()
	if err := r.ch.ExchangeDeclare(r.exchange, "topic", true, false, false, false, nil); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.ch.ExchangeDelete(r.exchange, false, false) })
}

func (r *rig) bind(queue, key string) {
	r.Helper()
	if err := r.ch.QueueBind(queue, key, r.exchange, false, nil); err != nil {
		r.Fatal(err)
	}
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
	q, err := http.NewRequest(method, "http://"+r.addr, body)
	if err != nil {
		r.Fatal(err)
	}
	q.URL = &url.URL{Scheme: "http", Host: r.addr, Opaque: path}
	for i := 0; i < len(headers); i += 2 {
		q.Header[headers[i]] = append(q.Header[headers[i]], headers[i+1])
	}
	a, err := client.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		r.Fatal(err)
	}
	return reply{a, string(b)}
}

func (r *rig) get() amqp.Delivery {
	r.Helper()
	return brokertest.Get(r, r.url, r.queue, 10*time.Second)
}

func dial(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}
