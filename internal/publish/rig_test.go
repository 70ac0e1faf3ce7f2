package publish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/httpguard"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.OneVhost{M: m}) }

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

// next takes the next message out of the queue, which has to have this body.
func (r *rig) next(body string) amqp.Delivery {
	r.Helper()
	d := r.get()
	if string(d.Body) != body {
		r.Errorf("the next message is %.60q, want %.60q", d.Body, body)
	}
	return d
}

func dial(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c := must.Get(net.Dial("tcp", addr))(tb)
	tb.Cleanup(func() { c.Close() })
	return c
}

// open begins a request with the headers, which announces a body of so many bytes, and sends the first of them.
func (r *rig) open(path, headers string, announced int, first string) net.Conn {
	r.Helper()
	c := dial(r, r.addr)
	must.Get(fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s", path, r.addr, headers, announced, first))(r)
	return c
}

// roundTrip sends bytes on a connection and reads one answer.
func (r *rig) roundTrip(c net.Conn, request string) reply {
	r.Helper()
	must.Get(io.WriteString(c, request))(r)
	return r.answer(c)
}

// answer reads one answer from a connection.
func (r *rig) answer(c net.Conn) reply {
	r.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	a := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(r)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		r.Fatal(err)
	}
	return reply{a, string(b)}
}

// want checks a refusal: a problem document with that status and code, whose detail holds text.
func (r *rig) want(what string, got reply, status int, c code, text string) {
	r.Helper()
	var p httpguard.Problem
	if got.StatusCode != status || json.Unmarshal([]byte(got.body), &p) != nil || p.Status != status || p.Code != string(c) ||
		got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(p.Detail, text) {
		r.Errorf("%s: %d %v %s, want %d %s with %q", what, got.StatusCode, got.Header, got.body, status, c, text)
	}
	if again := got.Header.Get("Retry-After"); (again != "") != (status == http.StatusServiceUnavailable) {
		r.Errorf("%s: Retry-After %q with %d", what, again, status)
	}
}

func (r *rig) wantPublished(what string, got reply) {
	r.Helper()
	if got.StatusCode != http.StatusNoContent || got.body != "" {
		r.Errorf("%s: %d %s", what, got.StatusCode, got.body)
	}
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.Helper()
	return brokertest.Metric(r, r.registry, name, labels...)
}
