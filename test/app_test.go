package test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	proxykit "sidecar/internal/testkit/proxy"
)

// delivery is one request the app received.
type delivery struct {
	at            time.Time
	nth           int // receipts of this id so far, from 1
	id            string
	method, uri   string
	host, remote  string
	header        http.Header
	contentLength int64
	encoding      []string // Transfer-Encoding
	body          []byte
}

func (d *delivery) number(header string) int {
	n, err := strconv.Atoi(d.header.Get(header))
	if err != nil {
		return -1
	}
	return n
}

// answer is what the app does with one request.
type answer struct {
	status int
	header map[string]string
	body   string
	gate   <-chan struct{} // not nil: answer only once it is closed
}

func status(code int) answer { return answer{status: code} }

// app is a web server that plays the user's service.
type app struct {
	t    testing.TB
	addr string

	mu     sync.Mutex
	srv    *http.Server
	got    []*delivery
	ofID   map[string][]*delivery // the same by their ids
	byID   map[string][]answer
	others func(*delivery) answer
	health int
	conns  map[net.Conn]struct{}
	made   int // connections in all

	inflight, peak int
}

// newApp listens at once and answers 200 to everything until told otherwise.
func newApp(t testing.TB) *app {
	t.Helper()
	a := &app{t: t, addr: freeAddr(t), byID: map[string][]answer{}, health: http.StatusOK}
	a.others = func(*delivery) answer { return status(http.StatusOK) }
	a.up()
	t.Cleanup(a.down)
	return a
}

// freeAddr returns a loopback address that stays free while an app or a proxy is down on purpose.
func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := proxykit.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// listenWithin opens an address that somebody closed a moment ago. A process that was being started at that time holds a
// copy of the socket until it has become its program, which is no reason to give up.
func listenWithin(limit time.Duration, addr string) (l net.Listener, err error) {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if l, err = net.Listen("tcp", addr); err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := listenWithin(patience, addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (a *app) url() string { return "http://" + a.addr + "/" }

func (a *app) up() {
	a.t.Helper()
	a.serve(listen(a.t, a.addr))
}

func (a *app) serve(l net.Listener) {
	srv := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute, ConnState: a.follow}
	a.mu.Lock()
	a.srv = srv
	a.mu.Unlock()
	go func() { _ = srv.Serve(l) }()
}

// follow keeps account of the open connections.
func (a *app) follow(c net.Conn, s http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(a.conns, c)
		return
	}
	if a.conns == nil {
		a.conns = map[net.Conn]struct{}{}
	}
	a.conns[c] = struct{}{}
	if s == http.StateNew {
		a.made++
	}
}

// dials is how many connections there have been.
func (a *app) dials() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.made
}

// connections is how many are open.
func (a *app) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// down closes the port and every connection, as a crash would.
func (a *app) down() {
	a.mu.Lock()
	srv := a.srv
	a.mu.Unlock()
	_ = srv.Close() // not under the lock: it tells follow of every connection
}

// on plays the answers to the receipts of one id in turn; the last one repeats.
func (a *app) on(id string, answers ...answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byID[id] = answers
}

// otherwise answers every id that on does not.
func (a *app) otherwise(f func(*delivery) answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others = f
}

// healthy sets what GET answers.
func (a *app) healthy(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health = code
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		a.mu.Lock()
		code := a.health
		a.mu.Unlock()
		w.WriteHeader(code)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d := &delivery{
		at: time.Now(), id: r.Header.Get("Amqp-Message-Id"), method: r.Method, uri: r.RequestURI, host: r.Host, remote: r.RemoteAddr,
		header: r.Header.Clone(), contentLength: r.ContentLength, encoding: r.TransferEncoding, body: body,
	}
	ans := a.record(d)
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.inflight--
	}()
	if ans.gate != nil {
		select {
		case <-ans.gate:
		case <-r.Context().Done():
			return
		}
	}
	for k, v := range ans.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(ans.status)
	_, _ = io.WriteString(w, ans.body)
}

func (a *app) record(d *delivery) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ofID == nil {
		a.ofID = map[string][]*delivery{}
	}
	d.nth = len(a.ofID[d.id]) + 1
	a.got, a.ofID[d.id] = append(a.got, d), append(a.ofID[d.id], d)
	a.inflight++
	a.peak = max(a.peak, a.inflight)
	if list := a.byID[d.id]; len(list) > 0 {
		return list[min(d.nth, len(list))-1]
	}
	return a.others(d)
}

// seen returns the receipts of one id, oldest first.
func (a *app) seen(id string) []*delivery {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ofID[id])
}

// most is how many requests were open at once.
func (a *app) most() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peak
}

// total counts all receipts.
func (a *app) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.got)
}

// different counts the ids that have been received.
func (a *app) different() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ofID)
}

// await waits for the nth receipt of an id and returns all of them.
func (a *app) await(id string, n int) []*delivery {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("receipt %d of message %q", n, id), func() bool { return len(a.seen(id)) >= n })
	return a.seen(id)
}

func (a *app) awaitAll(ids ...string) {
	a.t.Helper()
	for _, id := range ids {
		a.await(id, 1)
	}
}

// numbered returns name-0 … name-(n-1).
func numbered(name string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return ids
}
