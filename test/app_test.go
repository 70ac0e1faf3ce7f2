package test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"sidecar/internal/apptest"
	proxykit "sidecar/internal/testkit/proxy"
)

// delivery is one request the app received.
type delivery struct {
	*apptest.Request
	at                                  time.Time
	nth, conn                           int
	id, method, uri, host, remote, head string
	lines                               []string // header lines as they came
	header                              http.Header
	body                                []byte
}

func delivered(r *apptest.Request) *delivery {
	d := &delivery{
		Request: r, at: r.At, nth: r.Nth, conn: r.Conn, id: r.ID, method: r.Method, uri: r.Target, host: r.Header.Get("Host"), remote: r.Remote,
		head: r.Head(), lines: r.Lines(), header: r.Header.Clone(), body: r.Body,
	}
	d.header.Del("Host")
	return d
}

func (d *delivery) number(header string) int { return d.Number(header) }

// values returns the raw values of every line with that name, in any case.
func (d *delivery) values(name string) []string { return d.Values(name) }

func (d *delivery) value(name string) string {
	if v := d.Values(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// answer is what the app does with one request.
type answer struct {
	status int
	header map[string]string
	body   string
	gate   <-chan struct{} // not nil: answer only once it is closed
}

func status(code int) answer { return answer{status: code} }

func (a answer) reply() apptest.Reply {
	var lines []string
	for k, v := range a.header {
		lines = append(lines, k+": "+v)
	}
	say := apptest.Say(apptest.Full(a.status, a.body, lines...))
	if a.gate != nil {
		return apptest.Held(a.gate, say)
	}
	return say
}

// app plays the user's service: 200 to everything until a test scripts other answers.
type app struct {
	*apptest.App
	t    testing.TB
	addr string
}

func newApp(t testing.TB) *app {
	t.Helper()
	a := apptest.NewApp(t)
	return &app{App: a, t: t, addr: a.Addr}
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

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := apptest.ListenWithin(patience, addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (a *app) url() string          { return a.URL + "/" }
func (a *app) up()                  { a.Up() }
func (a *app) serve(l net.Listener) { a.Serve(l) }
func (a *app) down()                { a.Shut() }
func (a *app) total() int           { return len(a.Requests()) }

// on plays the answers to the receipts of one id in turn; the last one repeats.
func (a *app) on(id string, answers ...answer) {
	replies := make([]apptest.Reply, len(answers))
	for i := range answers {
		replies[i] = answers[i].reply()
	}
	a.On(id, replies...)
}

// otherwise answers every id that on does not.
func (a *app) otherwise(f func(*delivery) answer) {
	a.Otherwise(func(r *apptest.Request) apptest.Reply { return f(delivered(r)).reply() })
}

// all returns all receipts, oldest first.
func (a *app) all() []*delivery { return deliveries(a.Requests()) }

// seen returns the receipts of one id, oldest first.
func (a *app) seen(id string) []*delivery { return deliveries(a.Seen(id)) }

func deliveries(list []*apptest.Request) (all []*delivery) {
	for _, r := range list {
		all = append(all, delivered(r))
	}
	return all
}

// await waits for the nth receipt of an id and returns all of them.
func (a *app) await(id string, n int) []*delivery {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("receipt %d of message %q", n, id), func() bool { return len(a.Seen(id)) >= n })
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

// An app that answers with any bytes is the same app.
type (
	rawApp     = app
	rawRequest = delivery
)

// newRawApp gives every request to answer, also a GET.
func newRawApp(t testing.TB, answer func(net.Conn, *rawRequest) (keep bool)) *rawApp {
	t.Helper()
	a := newApp(t)
	a.Health(0)
	a.Otherwise(func(r *apptest.Request) apptest.Reply {
		if r.Method != http.MethodPost {
			t.Errorf("not a POST:\n%s", r.Raw)
		}
		return func(c *apptest.Conn) bool { return answer(c.Conn, delivered(r)) }
	})
	return a
}

func say(c net.Conn, s string) bool { return (&apptest.Conn{Conn: c}).Send(s) }

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
