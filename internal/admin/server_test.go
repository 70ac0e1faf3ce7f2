package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"sidecar/internal/apptest"
	"sidecar/internal/httpguard"
	"sidecar/internal/openapitest"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology/declare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeState is a State whose parts the tests set.
type fakeState struct {
	mu        sync.Mutex
	readiness Readiness
	names     []string // of subscriptions
	status    Status
	flow      Flow
	flows     int // how often it was asked for
	calls     []string
	draining  chan struct{}
	drained   chan struct{}
	onDrain   func()
}

func newFakeState() *fakeState {
	return &fakeState{
		status: Status{Consume: &Connection{}, Consumption: Consumption{
			State: Consuming, Pauses: []Pause{}, Findings: []Finding{}, Warnings: []string{}, Consumed: &Consumed{Queue: "wms.queue.a", RetryDelays: []string{}},
		}},
		flow: Flow{Depths: []declare.Depth{}, Totals: Totals{
			Settled: map[string]uint64{"ack": 1, "retry": 0, "requeue": 0, "park": 0, "discard": 0, "release": 0},
		}},
		draining: make(chan struct{}), drained: make(chan struct{}),
	}
}

func (f *fakeState) Subscriptions() []string { return f.names }
func (f *fakeState) Ready(name string) Readiness {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.readiness
	of.Checks = slices.DeleteFunc(slices.Clone(of.Checks), func(c Check) bool { return name != "" && c.Subscription != "" && c.Subscription != name })
	return of
}
func (f *fakeState) setReady(r Readiness)      { f.mu.Lock(); defer f.mu.Unlock(); f.readiness = r }
func (f *fakeState) Draining() <-chan struct{} { return f.draining }
func (f *fakeState) Drained() <-chan struct{}  { return f.drained }
func (f *fakeState) Pause(name string)         { f.become(strings.TrimSpace("pause "+name), Paused) }
func (f *fakeState) Resume(name string)        { f.become(strings.TrimSpace("resume "+name), Consuming) }

func (f *fakeState) Status() Status { f.mu.Lock(); defer f.mu.Unlock(); return f.status }

func (f *fakeState) Flow() Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows++
	return f.flow
}

func (f *fakeState) Drain() {
	f.become("drain", Draining)
	if f.onDrain != nil {
		f.onDrain()
	}
}

func (f *fakeState) become(call, state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.status.State = append(f.calls, call), state
}

func (f *fakeState) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, ",")
}

// running is a Server on free loopback ports.
type running struct {
	*Server
	t              *testing.T
	state          *fakeState
	log            *apptest.Log
	admin, control string
}

// document is loaded once for all tests.
var document struct {
	sync.Once
	d *openapitest.Document
}

// optionsOf are those of a server on free loopback ports without tokens and dead letters.
func optionsOf(state State, log io.Writer) Options {
	o := Options{
		AdminAddr: "127.0.0.1:0", ControlAddr: "127.0.0.1:0", State: state, Grace: time.Minute,
		Gatherer: prometheus.NewRegistry(), Logger: telemetry.NewLogger(log, "debug", "json"),
	}
	o.DeadLetters = apiOf(nil, o.Logger)
	return o
}

// unbound is a server that is asked without a socket, as if its control listener had the address 127.0.0.1:9091.
func unbound(o Options) *Server {
	o.ControlAddr = "127.0.0.1:9091"
	s := New(o)
	s.control.Hosts = httpguard.NewHosts(o.ControlAddr, addr("127.0.0.1"), o.Token != nil)
	return s
}

func start(t *testing.T, edit func(*Options)) *running {
	t.Helper()
	r := &running{t: t, state: newFakeState(), log: new(apptest.Log)}
	document.Do(func() { document.d = openapitest.Load(t, []byte(openAPIDocument)) })
	o := optionsOf(r.state, r.log)
	if edit != nil {
		edit(&o)
	}
	r.Server = New(o)
	addrs := must.Get(r.Listen())(t)
	r.admin, r.control = addrs.Admin, addrs.Control
	served := make(chan error, 1)
	go func() { served <- r.Serve(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

type reply struct {
	*http.Response
	body string
}

// do sends one request. What the control listener makes of it is compared with its OpenAPI document.
func (r *running) do(method, addr, path string, edit func(*http.Request)) reply {
	r.t.Helper()
	req := must.Get(http.NewRequest(method, "http://"+addr+path, nil))(r.t)
	if edit != nil {
		edit(req)
	}
	var sent []byte
	if req.Body != nil {
		sent, _ = io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp := must.Get(client.Do(req))(r.t)
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(r.t)
	if _, page := r.files[path]; addr == r.control && !page {
		document.d.Check(r.t, &openapitest.Exchange{
			Method: method, URL: req.URL, Type: req.Header.Get("Content-Type"), Body: sent,
			Status: resp.StatusCode, Header: resp.Header, Answer: b,
		})
	}
	return reply{resp, string(b)}
}

// send sends text as it is on a new connection, which ends with the test.
func (r *running) send(addr, text string) net.Conn {
	r.t.Helper()
	conn := must.Get(net.Dial("tcp", addr))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	must.Get(io.WriteString(conn, text))(r.t)
	return conn
}

// raw sends text as it is and reads one response.
func (r *running) raw(addr, text string) reply {
	r.t.Helper()
	conn := r.send(addr, text)
	defer conn.Close()
	resp := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(r.t)
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return reply{resp, string(b)}
}

// wantCalled checks what was called of the state so far, separated by commas.
func (r *running) wantCalled(want string) {
	r.t.Helper()
	if got := r.state.called(); got != want {
		r.t.Errorf("called %q, want %q", got, want)
	}
}

// wantLogged checks how many lines of the log contain all parts.
func (r *running) wantLogged(n int, parts ...string) {
	r.t.Helper()
	if got := len(r.log.Lines(parts...)); got != n {
		r.t.Errorf("%d lines with %q, want %d: %s", got, parts, n, r.log)
	}
}

// shutdown shuts the server down with time to spare.
func (r *running) shutdown() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.Shutdown(ctx)
}

// bound is a server that listens and does not serve yet.
func bound(t *testing.T, state State) (*Server, Addrs) {
	t.Helper()
	s := New(optionsOf(state, io.Discard))
	return s, must.Get(s.Listen())(t)
}

// fill takes all places.
func fill(places chan struct{}) {
	for range cap(places) {
		places <- struct{}{}
	}
}

// want checks the status alone.
func (r *running) want(what string, got reply, status int) {
	r.t.Helper()
	if got.StatusCode != status {
		r.t.Errorf("%s: status %d, want %d: %s", what, got.StatusCode, status, got.body)
	}
}

// wantBody checks the status and all of the body.
func (r *running) wantBody(what string, got reply, status int, body string) {
	r.t.Helper()
	if r.want(what, got, status); got.body != body+"\n" {
		r.t.Errorf("%s: %s, want %s", what, got.body, body)
	}
}

// wantProblem checks status and that the answer is a problem document that contains all of says.
func (r *running) wantProblem(what string, got reply, status int, says ...string) {
	r.t.Helper()
	for _, s := range says {
		if !strings.Contains(got.body, s) {
			r.t.Errorf("%s: no %q in %s", what, s, got.body)
		}
	}
	if got.StatusCode != status {
		r.t.Errorf("%s: status %d, want %d: %s", what, got.StatusCode, status, got.body)
		return
	}
	if ct := got.Header.Get("Content-Type"); ct != "application/problem+json" {
		r.t.Errorf("%s: content type %q", what, ct)
	}
	var p httpguard.Problem
	if got.Request != nil && got.Request.Method == http.MethodHead {
		return
	}
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Status != status || p.Title != http.StatusText(status) || p.Type != "about:blank" {
		r.t.Errorf("%s: %v in %s", what, err, got.body)
	}
}

// setBody keeps the client from sending an empty body in chunks.
func setBody(q *http.Request, body string) {
	if body != "" {
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
}
