package dispatch

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

func benchMessage(headers int) *message.Message {
	m := sample()
	m.Body = bytes.Repeat([]byte("x"), 1024)
	m.Timestamp = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m.Trace.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m.Headers = amqp.Table{}
	for i := range headers {
		m.Headers[fmt.Sprintf("x-tenant-%02d", i)] = fmt.Sprintf("value-%d", i)
	}
	return m
}

func BenchmarkEncodeRequest(b *testing.B) {
	for _, headers := range []int{0, 10, 64} {
		b.Run(fmt.Sprintf("headers=%d", headers), func(b *testing.B) {
			t := newTarget(b, "http://127.0.0.1:8080/")
			m := benchMessage(headers)
			x := newAttempt()
			defer x.release()
			b.ReportAllocs()
			for b.Loop() {
				x.request.encode(t.encoding, m)
			}
		})
	}
}

const typicalAnswer = "HTTP/1.1 204 No Content\r\nServer: app/1.0\r\nDate: Wed, 01 Jul 2026 12:00:00 GMT\r\n" +
	"X-Request-Id: 0af7651916cd43dd8448eb211c80319c\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n"

func BenchmarkParseAnswer(b *testing.B) {
	in := bytes.NewReader(nil)
	raw := []byte(typicalAnswer)
	x := newAttempt()
	defer x.release()
	b.ReportAllocs()
	for b.Loop() {
		in.Reset(raw)
		if err := x.answer.read(in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDispatch is a round trip to a server that does as little as possible. net/http is there to compare with.
func BenchmarkDispatch(b *testing.B) {
	m := benchMessage(0)
	withHeaders := benchMessage(10)
	for _, network := range []string{"tcp", "unix"} {
		url := bareServer(b, network)
		b.Run(network, func(b *testing.B) { benchDispatch(b, url, m) })
		b.Run(network+"/headers=10", func(b *testing.B) { benchDispatch(b, url, withHeaders) })
		b.Run(network+"/parallel", func(b *testing.B) {
			t := newTarget(b, url, func(o *Options) { o.MaxIdle = 64 })
			ctx := b.Context()
			b.SetParallelism(25)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if o := t.Dispatch(ctx, m); o.Status != 204 {
						b.Errorf("%+v", o)
					}
				}
			})
		})
	}
	b.Run("net-http", func(b *testing.B) { benchNetHTTP(b, bareServer(b, "tcp"), m) })
}

func benchDispatch(b *testing.B, url string, m *message.Message) {
	t := newTarget(b, url)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if o := t.Dispatch(ctx, m); o.Status != 204 {
			b.Fatalf("%+v", o)
		}
	}
}

func benchNetHTTP(b *testing.B, url string, m *message.Message) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(m.Body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", m.ContentType)
		r.Header.Set("Amqp-Message-Id", m.MessageID)
		r.Header.Set("Amqp-Queue", m.Queue)
		answer, err := transport.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

// bareServer answers whatever comes as soon as a body of x's has ended, without parsing anything.
func bareServer(tb testing.TB, network string) string {
	tb.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(tb.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveBare(c)
		}
	}()
	if network == "unix" {
		return "unix://" + address
	}
	return "http://" + l.Addr().String()
}

func serveBare(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	answer := []byte(typicalAnswer)
	end := bytes.Repeat([]byte("x"), 16)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if bytes.HasSuffix(buf[:n], end) {
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}
