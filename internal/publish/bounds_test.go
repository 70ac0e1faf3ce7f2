package publish

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

const mib = 1 << 20

// smallMemory bounds the account to n bytes: half of a budget.
func smallMemory(n int64) func(*Options) {
	return func(o *Options) {
		o.Memory = budget.New(2 * n).Account(budget.Publish)
		o.Timeout = time.Hour // nothing here may end by it
	}
}

// TestOneBatchWaits: of two batches that hold a part of a line and need more, one waits and the other one is busy at
// once; the first is published when there is memory again.
func TestOneBatchWaits(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(48*mib))
	rest := int64(40 * mib)
	must.Do(t, taken(r.memory.Take(rest)))
	first := make(chan []result, 1)
	go func() { first <- r.batch(`{"routing_key":"k","body":"` + strings.Repeat("x", 5*mib) + `"}`) }()
	brokertest.Eventually(t, time.Minute, "the first waits", func() bool { return len(r.server.growing) == 1 })
	r.wantCodes("the second", r.batch(`{"routing_key":"k","body":"`+strings.Repeat("x", 4*mib)+`"}`), busy)
	r.memory.Give(rest)
	r.wantCodes("the first", <-first, published)
}

// TestNeverFits: a body and a line that need more memory than there can ever be are refused as too large, not as busy.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(4*mib))
	r.want("a body", r.post("/publish/default/k", strings.Repeat("x", 3*mib)), http.StatusRequestEntityTooLarge, tooLarge, "half of SIDECAR_MEMORY")
	got := r.batch(`{"routing_key":"k","body":"`+strings.Repeat("x", 3*mib)+`"}`, `{"routing_key":"k","body":"next"}`)
	r.wantCodes("lines", got, tooLarge, published)
	r.wantPublished("a body that fits", r.post("/publish/default/k", strings.Repeat("x", 2*mib)))
}

// TestAnnouncedBodies: bodies that are announced and do not come hold neither memory nor slots that others need.
func TestAnnouncedBodies(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) {
		smallMemory(24 * mib)(o)
		o.MaxInflight = 2
	})
	for range 4 {
		r.open("/publish/default/k", "", 16*mib, "x")
	}
	for range 64 {
		r.open("/publish/default/k", "", 10, "x")
	}
	brokertest.Eventually(t, time.Minute, "all are being read", func() bool { return r.memory.Held() >= 68*costOfMessage })
	if held := r.memory.Held(); held > 68*(costOfMessage+firstBuffer+2*costOfHeader) {
		t.Errorf("%d bytes are held for 68 bytes", held)
	}
	r.wantPublished("another one", r.post("/publish/default/k", strings.Repeat("x", 4*mib)))
}

// TestSlowestEnds: bodies that stopped in the middle are ended when others need their memory. Their clients are answered
// so.
func TestSlowestEnds(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(24*mib))
	var slow []net.Conn
	for i := range int64(2) {
		slow = append(slow, r.open("/publish/default/k", "", 8*mib, strings.Repeat("x", 6*mib)))
		brokertest.Eventually(t, time.Minute, "its buffer is the last one", func() bool {
			return r.memory.Held()/mib == (i+1)*8 // while it grows the one before is held, too
		})
	}
	batch := r.open("/publish:batch", "Content-Type: application/jsonl\r\n", 8*mib, `{"routing_key":"k","body":"`+strings.Repeat("x", 3*mib))
	brokertest.Eventually(t, time.Minute, "they have stopped", func() bool { return r.memory.Held() >= 20*mib })
	another := func(size int) {
		t.Helper()
		brokertest.Eventually(t, time.Minute, "another one", func() bool {
			return r.post("/publish/default/k", strings.Repeat("x", size)).StatusCode == http.StatusNoContent
		})
	}
	another(12 * mib)
	for i, c := range slow {
		r.want(fmt.Sprint(i), r.answer(c), http.StatusRequestTimeout, errSlowest.code, "too slowly")
		c.Close()
	}
	another(15 * mib) // the batch is the next whose memory is needed
	got := r.results(r.answer(batch))
	r.wantCodes("the batch", got, errSlowest.code)
	if text := got[0].Detail; !strings.Contains(text, "too slowly") || !strings.Contains(text, "were not read") {
		t.Error(text)
	}
}

// TestRefusedBodyIsAnswered: a client that sends all of a large body before it reads sees why it was refused.
func TestRefusedBodyIsAnswered(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Token = func() string { return "t" } })
	body := strings.Repeat("x", 16*mib)
	const token = "Authorization: Bearer t\r\n"
	for _, c := range []struct {
		what, path, headers string
		status              int
	}{
		{"no token", "/publish/default/k", "", http.StatusUnauthorized},
		{"an alias", "/publish/none/k", token, http.StatusForbidden},
		{"busy", "/publish/default/k", token, http.StatusServiceUnavailable},
		{"a busy batch", "/publish:batch", token + "Content-Type: application/jsonl\r\n", http.StatusServiceUnavailable},
	} {
		others := int64(0)
		if c.status == http.StatusServiceUnavailable {
			others = r.memory.Limit() / 2
		}
		must.Do(t, taken(r.memory.Take(others)))
		conn := r.open(c.path, c.headers, len(body), body)
		if got := r.answer(conn); got.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.what, got.StatusCode, got.body)
		}
		conn.Close()
		r.memory.Give(others)
		brokertest.Eventually(t, time.Minute, "the memory is given back", func() bool { return r.memory.Held() == 0 })
	}
}

// TestHeadersAreCounted: headers of a request take memory.
func TestHeadersAreCounted(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	large := strings.Repeat("v", 100<<10)
	c := r.open("/publish/default/k", "Amqp-Header-A: "+large+"\r\n", 2, "x")
	brokertest.Eventually(t, time.Minute, "the headers are counted", func() bool { return r.memory.Held() > int64(2*len(large)) })
	c.Close()
	brokertest.Eventually(t, time.Minute, "the memory is given back", func() bool { return r.memory.Held() == 0 })
}

// TestAnswersBeforeTheBody: what is known before the body is read is answered before it has come, and ends the connection.
// The bodies here never come, and a request may take an hour.
func TestAnswersBeforeTheBody(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Timeout, o.MaxInflight, o.MaxBody = time.Hour, 1, 1000 })
	early := func(what, target, headers string, status int, c code, text string) {
		t.Helper()
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			conn := dial(t, r.addr)
			got := r.roundTrip(conn, fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\n64\r\nx", target, r.addr, length, headers))
			r.want(what, got, status, c, text)
			if !got.Close {
				t.Errorf("%s: the connection stays open", what)
			}
			conn.Close()
		}
	}
	early("an alias", "POST /publish/none/k", "", http.StatusForbidden, forbidden, "no exchange alias")
	early("a header", "POST /publish/default/k", "Amqp-Priority: x\r\n", http.StatusBadRequest, invalid, "Amqp-Priority")
	early("a query", "POST /publish/default/k?x", "", http.StatusBadRequest, invalid, "query")
	early("a method", "PUT /publish/default/k", "", http.StatusMethodNotAllowed, badMethod, "")
	early("a path", "POST /elsewhere", "", http.StatusNotFound, notFound, "")
	early("a probe", "POST /readyz", "", http.StatusMethodNotAllowed, badMethod, "")
	early("a batch", "POST /publish:batch", "", http.StatusUnsupportedMediaType, invalid, "jsonl")
	early("another site", "POST /publish/default/k", "Origin: http://evil.example\r\n", http.StatusForbidden, forbidden, "")
	r.server.inflight.Enter()
	early("no room", "POST /publish/default/k", "", http.StatusServiceUnavailable, busy, "Nothing was sent")
	r.server.inflight.Leave()
	r.server.stopping.Store(true)
	early("a stop", "POST /publish/default/k", "", http.StatusServiceUnavailable, stopping, "Nothing was sent")
	r.server.stopping.Store(false)

	conn := dial(t, r.addr)
	for _, request := range []string{
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", "POST /publish/missing/k HTTP/1.1\r\nHost: h\r\n\r\n", "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /publish/default/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"POST /publish:batch HTTP/1.1\r\nHost: h\r\nContent-Type: application/jsonl\r\nContent-Length: 19\r\n\r\n{\"routing_key\":\"k\"}",
	} {
		if got := r.roundTrip(conn, strings.Replace(request, "Host: h", "Host: "+r.addr, 1)); got.Close {
			t.Errorf("%.40q ended the connection", request)
		}
	}
	tooMuch := "POST /publish/default/k HTTP/1.1\r\nHost: h\r\nAmqp-Header-A: " + strings.Repeat("x", 200<<10) + "\r\n\r\n"
	if got := r.roundTrip(dial(t, r.addr), tooMuch); got.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !got.Close {
		t.Errorf("too large headers: %d %v", got.StatusCode, got.Header)
	}
}

// TestOldestSlowBodyEndsFirst: of bodies that come slowly, the one that has been longest on its way makes room, and no other.
func TestOldestSlowBodyEndsFirst(t *testing.T) {
	t.Parallel()
	a, now := arrivals{slowAfter: time.Second, all: map[*arrival]struct{}{}}, time.Now()
	oldest := &arrival{w: httptest.NewRecorder(), since: now.Add(-10 * time.Second), held: 10}
	other := &arrival{w: httptest.NewRecorder(), since: now.Add(-5 * time.Second), held: 10}
	a.all[oldest], a.all[other] = struct{}{}, struct{}{}
	if !a.end(&room{}, 10) || !oldest.ended || other.ended {
		t.Errorf("the oldest ended: %v, the other: %v", oldest.ended, other.ended)
	}
}

// TestLargestBodyAsBase64: a body of SIDECAR_MAX_BODY fits, as base64 as well.
func TestLargestBodyAsBase64(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxBody = 1 << 20 })
	body := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	r.wantCodes("base64", r.batch(`{"routing_key":"k","body_base64":"`+body+`"}`), published)
}
