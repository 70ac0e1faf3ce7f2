package apptest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

// Reply answers one request. After false the connection is closed.
type Reply func(*Conn) bool

// Say is a Reply of these bytes.
func Say(raw string) Reply { return func(c *Conn) bool { return c.Send(raw) } }

// Held is a Reply after the gate has been closed, or none if the client does not wait for it.
func Held(gate <-chan struct{}, then Reply) Reply {
	return func(c *Conn) bool {
		select {
		case <-gate:
			return then(c)
		case <-c.Gone():
			return false
		}
	}
}

// App is a Server that plays the user's service: it answers messages by their ids.
type App struct {
	*Server
	Addr string // no other process takes it while the app is shut

	tb      testing.TB
	scripts map[string][]Reply
	others  func(*Request) Reply
}

// reopens bounds how long Up waits for its address.
const reopens = time.Minute

// NewApp listens on a loopback address until the test ends, and answers 200 to every message and every GET.
func NewApp(tb testing.TB) *App {
	tb.Helper()
	a := &App{tb: tb, scripts: map[string][]Reply{}}
	a.others = func(*Request) Reply { return Say(Status(http.StatusOK)) }
	a.Server = New(a.serve)
	a.Addr = must.Get(proxy.FreeAddr())(tb)
	a.URL = "http://" + a.Addr
	a.Up()
	tb.Cleanup(a.Shut)
	return a
}

// Up listens again at the same address after Shut.
func (a *App) Up() {
	a.tb.Helper()
	a.Serve(must.Get(ListenWithin(reopens, a.Addr))(a.tb))
}

// On gives the replies to the first, second … request of the message with this Amqp-Message-Id; the last one repeats.
func (a *App) On(id string, replies ...Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scripts[id] = replies
}

// Otherwise sets the replies to messages that On has none for. The calls of f never overlap; those of its replies do.
func (a *App) Otherwise(f func(*Request) Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others = f
}

func (a *App) serve(c *Conn) {
	for a.answer(c) {
	}
}

func (a *App) answer(c *Conn) bool {
	r, err := c.Begin()
	if err == nil {
		err = c.Finish(r)
	}
	if errors.Is(err, ErrMalformed) {
		a.tb.Error(err)
	}
	if err != nil {
		return false
	}
	if r.Method == http.MethodGet { // a probe
		return c.Send(Status(http.StatusOK))
	}
	return a.begin(r)(c)
}

func (a *App) begin(r *Request) Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(r)
	if list := a.scripts[r.ID]; len(list) > 0 {
		return list[min(r.Nth, len(list))-1]
	}
	return a.others(r)
}
