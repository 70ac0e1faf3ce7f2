package dispatch

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

func benchMessage(headers int) *message.Message {
	m := withBody(sample(), 1024)
	m.Timestamp = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m.Trace.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m.Headers = amqp.Table{}
	for i := range headers {
		m.Headers[fmt.Sprintf("x-tenant-%02d", i)] = fmt.Sprintf("value-%d", i)
	}
	return m
}

func withBody(m *message.Message, size int) *message.Message {
	m.Body = append(bytes.Repeat([]byte("x"), size-len(bodyEnd)), bodyEnd...)
	return m
}

// encodable is a message to encode, and the options to do it with.
type encodable struct {
	name   string
	m      *message.Message
	change func(*Options)
}

func encodables() []encodable {
	same := func(*Options) {}
	events := func(o *Options) { o.CloudEvents = true }
	return []encodable{
		{"headers=0", benchMessage(0), same},
		{"headers=8", benchMessage(8), same},
		{"headers=64", benchMessage(64), same},
		{"token", benchMessage(10), func(o *Options) { o.Token = func() string { return "t" } }},
		{"integers=8", withHeaders(benchMessage(0), amqp.Table{
			"n-1": int32(1), "n-2": int64(2), "n-3": int16(3), "n-4": true, "n-5": 5.5, "n-6": uint8(6), "n-7": int32(7), "n-8": nil,
		}), same},
		{"retried", withHeaders(benchMessage(0), amqp.Table{
			"x-death": []any{amqp.Table{"count": int64(1)}}, "x-first-death-queue": "q", "x-first-death-reason": "rejected",
			"x-first-death-exchange": "e", "x-last-death-queue": "q", "x-last-death-reason": "rejected", "x-last-death-exchange": "e",
		}), same},
		{"cloud-event", withHeaders(benchMessage(0), amqp.Table{
			"cloudEvents_specversion": "1.0", "cloudEvents_id": "0af76519-16cd-43dd-8448-eb211c80319c",
			"cloudEvents_source": "/orders/eu", "cloudEvents_type": "order.created.v1",
			"cloudEvents_subject": "order-1", "cloudEvents_time": "2026-07-01T12:00:00Z",
		}), events},
		{"cloud-event-made", benchMessage(0), events},
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, e := range encodables() {
		b.Run(e.name, func(b *testing.B) {
			t := newTarget(b, "http://127.0.0.1:8080/", e.change)
			x := newAttempt(&Target{}, time.Time{})
			defer x.release()
			b.ReportAllocs()
			for b.Loop() {
				x.request.encode(t, e.m, "")
			}
		})
	}
}

func TestEncodeAllocatesNothing(t *testing.T) {
	for _, e := range encodables() {
		target := newTarget(t, "http://127.0.0.1:8080/", e.change)
		x := newAttempt(&Target{}, time.Time{})
		if n := testing.AllocsPerRun(100, func() { x.request.encode(target, e.m, "") }); n != 0 {
			t.Errorf("%s: %v allocations", e.name, n)
		}
		if x.request.leftOut != 0 {
			t.Errorf("%s: left %d headers out", e.name, x.request.leftOut)
		}
		x.release()
	}
}

const typicalAnswer = "HTTP/1.1 204 No Content\r\nServer: app/1.0\r\nDate: Wed, 01 Jul 2026 12:00:00 GMT\r\n" +
	"X-Request-Id: 0af7651916cd43dd8448eb211c80319c\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n"

type sent struct{ name, text string }

// commonAnswers are what common servers send by default.
func commonAnswers() []sent {
	const date = "Wed, 01 Jul 2026 12:00:00 GMT"
	return []sent{
		{"204-bare", "HTTP/1.1 204 No Content\r\n\r\n"},
		{"204", typicalAnswer},
		{"200-go", "HTTP/1.1 200 OK\r\nDate: " + date + "\r\nContent-Length: 3\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nok\n"},
		{"200-uvicorn", "HTTP/1.1 200 OK\r\ndate: " + date + "\r\nserver: uvicorn\r\ncontent-length: 15\r\n" +
			"content-type: application/json\r\n\r\n{\"status\":\"ok\"}"},
		{"200-express", "HTTP/1.1 200 OK\r\nX-Powered-By: Express\r\nContent-Type: application/json; charset=utf-8\r\n" +
			"Content-Length: 15\r\nETag: W/\"f-VaSQ4oDUiZblZNAEkkN+sX+q3Sg\"\r\nDate: " + date + "\r\n" +
			"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n{\"status\":\"ok\"}"},
		{"200-chunked-spring", "HTTP/1.1 200 \r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nDate: " + date + "\r\n" +
			"Keep-Alive: timeout=60\r\nConnection: keep-alive\r\n\r\nf\r\n{\"status\":\"ok\"}\r\n0\r\n\r\n"},
		{"200-chunked-php", "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: " + date + "\r\nContent-Type: text/html; charset=UTF-8\r\n" +
			"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\nX-Powered-By: PHP/8.4\r\nCache-Control: no-cache, private\r\n\r\n" +
			"2\r\nok\r\n0\r\n\r\n"},
		{"503-retry-after", "HTTP/1.1 503 Service Unavailable\r\nDate: " + date + "\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"},
	}
}

const problemAnswer = "HTTP/1.1 422 Unprocessable Content\r\nContent-Type: application/problem+json\r\n" +
	"Date: Wed, 01 Jul 2026 12:00:00 GMT\r\nServer: Kestrel\r\nContent-Length: 146\r\n\r\n" +
	`{"type":"https://example.com/problems/stock","title":"Out of stock","status":422,` +
	`"detail":"order 17 needs 3 of 2 left","instance":"/orders/17"   }`

// parse reads an answer and takes the facts from it.
func parse(tb testing.TB, x *attempt, text string) (next func()) {
	in := strings.NewReader(text)
	return func() {
		in.Reset(text)
		if err := x.exchange.Answer.Read(in, &x.answer); err != nil {
			tb.Fatal(err)
		}
		x.answer.report(&x.exchange.Answer, &x.out, time.Minute)
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, a := range append(commonAnswers(), sent{"422-problem", problemAnswer}) {
		b.Run(a.name, func(b *testing.B) {
			x := newAttempt(&Target{o: Options{Answer: 1024}}, time.Time{})
			defer x.release()
			next := parse(b, x, a.text)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
			if !x.exchange.Answer.Reusable || a.text == problemAnswer && x.out.Problem == nil {
				b.Errorf("read as %+v", x.answer)
			}
		})
	}
}

// TestCommonAnswersAllocateNothing: nor do answers without a JSON object where Dapr's statuses are read.
func TestCommonAnswersAllocateNothing(t *testing.T) {
	for _, a := range commonAnswers() {
		dapr := !strings.Contains(a.text, "{")
		x := newAttempt(&Target{o: Options{Answer: 1024, Dapr: dapr}}, time.Time{})
		if n := testing.AllocsPerRun(100, parse(t, x, a.text)); n != 0 {
			t.Errorf("%s: %v allocations", a.name, n)
		}
		if !x.exchange.Answer.Reusable {
			t.Errorf("%s: the connection would be closed", a.name)
		}
		x.release()
	}
}

// BenchmarkDispatch is a round trip to a server that does as little as possible. net/http is there to compare with.
func BenchmarkDispatch(b *testing.B) {
	for _, network := range []string{"tcp", "unix"} {
		url := bareServer(b, network)
		b.Run(network+"/headers=0", func(b *testing.B) { benchDispatch(b, url, benchMessage(0)) })
		b.Run(network+"/headers=8", func(b *testing.B) { benchDispatch(b, url, benchMessage(8)) })
		b.Run(network+"/headers=64", func(b *testing.B) { benchDispatch(b, url, benchMessage(64)) })
		b.Run(network+"/body=16K", func(b *testing.B) { benchDispatch(b, url, withBody(benchMessage(0), 16<<10)) })
		b.Run(network+"/body=256K", func(b *testing.B) { benchDispatch(b, url, withBody(benchMessage(0), 256<<10)) })
		b.Run(network+"/parallel", func(b *testing.B) {
			t, m := newTarget(b, url, func(o *Options) { o.MaxIdle = 64 }), benchMessage(0)
			inParallel(b, func() { post204(b, t, m) })
		})
	}
	url, m := bareServer(b, "tcp"), benchMessage(0)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	b.Run("net-http", func(b *testing.B) {
		postNetHTTP(b, transport, url, m)
		b.ReportAllocs()
		for b.Loop() {
			postNetHTTP(b, transport, url, m)
		}
	})
	b.Run("net-http/parallel", func(b *testing.B) { inParallel(b, func() { postNetHTTP(b, transport, url, m) }) })
}

func benchDispatch(b *testing.B, url string, m *message.Message) {
	t := newTarget(b, url)
	post204(b, t, m) // connects
	b.ReportAllocs()
	for b.Loop() {
		post204(b, t, m)
	}
}

// inParallel runs post in 50 goroutines, after a round in which they connect.
func inParallel(b *testing.B, post func()) {
	b.SetParallelism(25)
	var connecting sync.WaitGroup
	for range 50 {
		connecting.Go(func() {
			for range 20 {
				post()
			}
		})
	}
	connecting.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			post()
		}
	})
}

func post204(tb testing.TB, t *Target, m *message.Message) {
	if o := t.Dispatch(tb.Context(), m); o.Status != 204 {
		tb.Errorf("%+v", o)
	}
}

func postNetHTTP(tb testing.TB, transport *http.Transport, url string, m *message.Message) {
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(m.Body))
	if err != nil {
		tb.Error(err)
		return
	}
	r.Header.Set("Content-Type", m.ContentType)
	r.Header.Set("Amqp-Message-Id", m.MessageID)
	r.Header.Set("Amqp-Queue", m.Queue)
	answer, err := transport.RoundTrip(r)
	if err != nil {
		tb.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// A whole attempt over an open connection allocates nothing. The least of many rounds counts: memory comes from a
// sync.Pool, which forgets at every collection, and at random under the race detector.
func TestDispatchAllocatesNothing(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		target := newTarget(t, bareServer(t, network))
		for _, headers := range []int{0, 8} {
			m, least := benchMessage(headers), 1e9
			for range 50 {
				least = min(least, testing.AllocsPerRun(1, func() { post204(t, target, m) }))
			}
			if least != 0 {
				t.Errorf("%s with %d headers: at least %v allocations", network, headers, least)
			}
		}
	}
}
