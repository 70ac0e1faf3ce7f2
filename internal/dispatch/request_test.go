package dispatch

import (
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
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

func TestRequestOfAMessageWithNothingSet(t *testing.T) {
	t.Parallel()
	r, _ := post(t, &message.Message{Queue: "q", MaxRetries: 10})
	wantRequest(t, r,
		"POST / HTTP/1.1",
		"Host: "+r.Header.Get("Host"),
		"User-Agent: amqp-sidecar/test",
		"Content-Type: application/octet-stream",
		"Content-Length: 0",
		"Amqp-Queue: q",
		"Amqp-Exchange: ",
		"Amqp-Routing-Key: ",
		"Amqp-Delivery-Attempt: 1",
		"Amqp-Retry-Count: 0",
		"Amqp-Max-Retries: 10",
		"Amqp-Redelivered: false",
		"", "",
	)
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

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := apptest.ListenUnix(t, apptest.Answer(apptest.Status(204)))
	target := newTarget(t, s.URL+":/in/box?x=1")
	wantStatuses(t, target, 3, 204)
	if r := s.Requests()[0]; r.Target != "/in/box?x=1" || r.Header.Get("Host") != "localhost" {
		t.Errorf("target %q, host %q", r.Target, r.Header.Get("Host"))
	}
	wantSeen(t, s, 1, 3)
}

func TestTokenThatCannotBeInAHeaderIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"a\r\nX: y", "a b", "ü", ""} {
		r, _ := post(t, sample(), func(o *Options) { o.Token = func() string { return token } })
		if v, ok := r.Header["Authorization"]; ok {
			t.Errorf("token %q: sent %q", token, v)
		}
	}
}

func TestTokenIsAskedForEveryRequest(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	token := "one"
	target := newTarget(t, s.URL, func(o *Options) { o.Token = func() string { return token } })
	dispatch(t, target, sample())
	token = "two"
	dispatch(t, target, sample())
	r := s.Requests()
	if a, b := r[0].Header.Get("Authorization"), r[1].Header.Get("Authorization"); a != "Bearer one" || b != "Bearer two" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestTraceContextThatCannotBeInAHeaderIsLeftOutAndCounted(t *testing.T) {
	t.Parallel()
	m := sample()
	m.Trace = message.TraceContext{
		Traceparent: "00-x\r\nX-Evil: 1", Tracestate: strings.Repeat("a", maxTrace+1), Baggage: "k=ü",
	}
	r, o := post(t, m)
	for _, n := range []string{"Traceparent", "Tracestate", "Baggage", "X-Evil"} {
		if _, ok := r.Header[n]; ok {
			t.Errorf("%s was sent", n)
		}
	}
	if o.Truncated != 3 || r.Header.Get("Amqp-Headers-Truncated") != "3" {
		t.Errorf("counted %d, header %q, want 3", o.Truncated, r.Header.Get("Amqp-Headers-Truncated"))
	}
}
