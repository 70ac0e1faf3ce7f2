package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
)

func TestRequestBytes(t *testing.T) {
	t.Parallel()
	m := everything()
	r, _ := post(t, m, func(o *Options) { o.Token = func() string { return "s3cret" } })
	wantRequest(t, r,
		"POST / HTTP/1.1",
		"Host: "+r.Header.Get("Host"),
		"User-Agent: amqp-sidecar/test",
		"Authorization: Bearer s3cret",
		"Content-Type: application/json",
		"Content-Length: 8",
		"Content-Encoding: identity",
		"Amqp-Message-Id: id-1",
		"Amqp-Correlation-Id: corr",
		"Amqp-Reply-To: reply",
		"Amqp-Type: order",
		"Amqp-App-Id: shop",
		"Amqp-User-Id: guest",
		"Amqp-Priority: 5",
		"Amqp-Expiration: 60000",
		"Amqp-Timestamp: 2026-07-01T10:00:00Z",
		"Amqp-Queue: q",
		"Amqp-Exchange: ex",
		"Amqp-Routing-Key: a.b",
		"Amqp-Delivery-Attempt: 4",
		"Amqp-Retry-Count: 3",
		"Amqp-Max-Retries: 3",
		"Amqp-Redelivered: true",
		"Amqp-Last-Attempt: true",
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate: a=b",
		"baggage: k=v%20w",
		"Amqp-Header-CC: x",
		"Amqp-Header-n: 7",
		"Amqp-Header-secret: s",
		"Amqp-Header-tenant: acme",
		"", `{"n": 1}`,
	)
}

func wantRequest(t *testing.T, r *apptest.Request, lines ...string) {
	t.Helper()
	if want := strings.Join(lines, "\r\n"); string(r.Raw) != want {
		t.Errorf("got\n%s\nwant\n%s", r.Raw, want)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s, trust := apptest.ListenTLS(t, apptest.Answer(apptest.Status(204)))
	target := newTarget(t, s.URL+"/in", func(o *Options) { o.TLS = trust })
	for i, size := range []int{0, 4<<10 + 1, 64<<10 + 1} {
		wantStatus(t, dispatch(t, target, sized(size)), 204)
		if n := len(s.Requests()[i].Body); n != size {
			t.Errorf("body %d: got %d bytes, want %d", i, n, size)
		}
	}
	wantSeen(t, s, 1, 3)
}

// TestTokenIsAskedForEveryRequest: one that cannot be in a header is left out.
func TestTokenIsAskedForEveryRequest(t *testing.T) {
	t.Parallel()
	var token string
	s, target := listen(t, 204, func(o *Options) { o.Token = func() string { return token } })
	for i, want := range []string{"one", "two", "", "", "", ""} {
		token = []string{"one", "two", "a\r\nX: y", "a b", "ü", ""}[i]
		dispatch(t, target, sample())
		if got := s.Requests()[i].Header.Get("Authorization"); strings.TrimPrefix(got, "Bearer ") != want || (got == "") != (want == "") {
			t.Errorf("token %q: sent %q", token, got)
		}
	}
}

func TestCloseClosesIdleConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 2)
	s := apptest.Listen(t, func(c *apptest.Conn) {
		apptest.Answer(apptest.Status(204))(c)
		closed <- struct{}{}
	})
	target := newTarget(t, s.URL)
	wantStatus(t, dispatch(t, target, sample()), 204)
	target.Close()
	<-closed
	wantStatus(t, dispatch(t, target, sample()), 204) // still answers, and keeps nothing
	<-closed
}

func TestReleaseForgetsTheMessage(t *testing.T) { //nolint:paralleltest // reads what it gave back to the pool
	target := newTarget(t, "http://127.0.0.1:1/")
	m := withHeaders(sample(), amqp.Table{"tenant": "acme"})
	x := newAttempt(target, time.Time{})
	x.request.encode(target, m, "")
	_ = x.exchange.Answer.Read(strings.NewReader("HTTP/1.1 422 X\r\nAmqp-Reason: r\r\nContent-Length: 0\r\n\r\n"), &x.answer)
	x.release()
	for _, k := range x.request.keys {
		if k != "" {
			t.Errorf("kept the key %q", k)
		}
	}
	if fmt.Sprint(x.answer) != fmt.Sprint(answer{}) || x.out.Status != 0 {
		t.Errorf("kept %+v, %+v", x.answer, x.out)
	}
}
