package admin

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// unfinished opens connections that send text and then nothing.
func unfinished(t *testing.T, addr, text string, n int) []net.Conn {
	t.Helper()
	var all []net.Conn
	for range n {
		c := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", addr))(t)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write([]byte(text)) // it may have been closed to make room
		all = append(all, c)
	}
	return all
}

// TestUnfinishedRequests: far more than the listener takes, of headers and of bodies. Others are answered, and no
// memory stays.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	memory := budget.New(16 << 20).Account(budget.Requests)
	r := start(t, func(o *Options) { o.Memory = memory })
	header := "GET /livez HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("a:b\r\n", 2500)
	body := "POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
	var open []net.Conn
	for _, addr := range []string{r.admin, r.control} {
		open = append(open, unfinished(t, addr, header, 2*maxConns)...)
	}
	open = append(open, unfinished(t, r.control, body, 2*maxConns)...)
	if held := memory.Held(); held > 8<<20 {
		t.Errorf("%d bytes of headers are held", held)
	}
	for range 3 {
		r.want("/livez", r.do(http.MethodGet, r.admin, "/livez", nil), http.StatusOK)
		r.want("/status", r.do(http.MethodGet, r.control, "/status", nil), http.StatusOK)
	}
	for _, c := range open {
		_ = c.Close()
	}
	brokertest.Eventually(t, time.Minute, "no memory is held after the end of the connections", func() bool { return memory.Held() == 0 })
}

// TestABodyWithoutMemory is refused before it is read, and takes no slot.
func TestABodyWithoutMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	b.Account(budget.Deliveries).Take(b.Limit())
	r := start(t, func(o *Options) { o.Memory = b.Account(budget.Requests) })
	got := r.raw(r.control, "POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	if r.want("/pause", got, http.StatusServiceUnavailable); !got.Close {
		t.Error("the connection stays")
	}
	r.want("/livez", r.do(http.MethodGet, r.admin, "/livez", nil), http.StatusOK) // costs too little to be counted
}
