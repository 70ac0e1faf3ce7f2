package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

func TestMain(m *testing.M) {
	// No test may depend on the absence of a proxy: the client must not look for one.
	_ = os.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	_ = os.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	time.Local = time.FixedZone("away", 5*3600+1800) // dates of HTTP are not local times
	goleak.VerifyTestMain(m)
}

// newTarget returns a Target for url with a generous timeout; each change may alter the options.
func newTarget(tb testing.TB, url string, changes ...func(*Options)) *Target {
	tb.Helper()
	o := Options{
		URL: url, Timeout: 20 * time.Second, RetryAfterMax: 5 * time.Minute, MaxBody: 16 << 20, HealthTimeout: time.Second,
		Forward: []string{"*"}, Version: "test", MaxIdle: 16, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range changes {
		c(&o)
	}
	t, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return t
}

// listen starts an app that answers every request with status, and a Target for it.
func listen(tb testing.TB, status int, changes ...func(*Options)) (*apptest.Server, *Target) {
	tb.Helper()
	s := apptest.Listen(tb, apptest.Answer(apptest.Status(status)))
	return s, newTarget(tb, s.URL, changes...)
}

// wantSeen checks how many connections the app has accepted and how many requests it has read.
func wantSeen(tb testing.TB, s *apptest.Server, connections, requests int) {
	tb.Helper()
	if c, n := s.Accepted(), len(s.Requests()); c != connections || n != requests {
		tb.Errorf("%s: %d connections and %d requests, want %d and %d", s.URL, c, n, connections, requests)
	}
}

// wantStatuses dispatches n messages, each of which must get the status.
func wantStatuses(tb testing.TB, t *Target, n, status int) {
	tb.Helper()
	for range n {
		wantStatus(tb, dispatch(tb, t, sample()), status)
	}
}

// sized is a message with a body of size bytes.
func sized(size int) *message.Message {
	m := sample()
	m.Body = make([]byte, size)
	return m
}

// patience is a timeout that some tests wait out; a busy machine connects and sends a request within it.
const patience = time.Second

func timeout(d time.Duration) func(*Options) { return func(o *Options) { o.Timeout = d } }

func sample() *message.Message {
	return &message.Message{
		Body: []byte(`{"n":1}`), ContentType: "application/json", MessageID: "m-1",
		Queue: "wms.queue.a", Exchange: "wms.main-exchange", RoutingKey: "order.created", MaxRetries: 10,
	}
}

func dispatch(tb testing.TB, t *Target, m *message.Message) message.Outcome {
	tb.Helper()
	o := t.Dispatch(context.Background(), m)
	if o.At.IsZero() || o.Elapsed <= 0 {
		tb.Errorf("outcome without a time: %+v", o)
	}
	return o
}

func wantStatus(tb testing.TB, o message.Outcome, status int) {
	tb.Helper()
	if o.Failure != message.FailureNone || o.Status != status || o.Err != nil {
		tb.Errorf("got status %d, failure %q (%v), want status %d", o.Status, o.Failure, o.Err, status)
	}
}

func wantFailure(tb testing.TB, o message.Outcome, f message.Failure, text string) {
	tb.Helper()
	if o.Failure != f || o.Status != 0 || o.Err == nil {
		tb.Fatalf("got status %d, failure %q (%v), want failure %q", o.Status, o.Failure, o.Err, f)
	}
	if !strings.Contains(o.Err.Error(), text) {
		tb.Errorf("error %q does not say %q", o.Err, text)
	}
}

// post dispatches m to an app that answers 204 and returns the request it got.
func post(tb testing.TB, m *message.Message, changes ...func(*Options)) (*apptest.Request, message.Outcome) {
	tb.Helper()
	s := apptest.Listen(tb, apptest.Answer(apptest.Status(204)))
	o := dispatch(tb, newTarget(tb, s.URL, changes...), m)
	wantStatus(tb, o, 204)
	got := s.Requests()
	if len(got) != 1 {
		tb.Fatalf("the app got %d requests, want 1", len(got))
	}
	if string(got[0].Body) != string(m.Body) {
		tb.Errorf("the body changed: got %d bytes, want %d", len(got[0].Body), len(m.Body))
	}
	return got[0], o
}

func itoa(n int) string { return strconv.Itoa(n) }

// chunk frames a part of a body. An empty chunk would end the body and is left out.
func chunk(part string) string {
	if part == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
}

// bareServer answers as soon as the end of a body comes in, without parsing anything.
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
	tb.Cleanup(func() { _ = l.Close() })
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
	answer, end := []byte(typicalAnswer), []byte(bodyEnd)
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

func withHeaders(m *message.Message, h amqp.Table) *message.Message {
	m.Headers = h
	return m
}

// bodyEnd is how the bare server below finds the end of a body, without parsing anything.
const bodyEnd = "the end\n"
