package topologytest

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// patience is how long a test waits for what has to happen. Nothing is asserted about it: a slow machine is no fault.
const patience = 90 * time.Second

// answer is what the app does with one request; false closes the connection afterwards.
type answer func(c *apptest.Conn) bool

// receipt is one message as the app received it.
type receipt struct {
	at     time.Time
	header http.Header
	body   string
}

// number reads a count out of a header; -1 when it is none.
func (r *receipt) number(name string) int {
	n, err := strconv.Atoi(r.header.Get(name))
	if err != nil {
		return -1
	}
	return n
}

// app answers by message id, over real sockets. What it was told nothing about it takes.
type app struct {
	url    string
	ending chan struct{}

	mu      sync.Mutex
	scripts map[string][]answer
	seen    map[string][]receipt
}

func newApp(t testing.TB) *app {
	a := &app{scripts: map[string][]answer{}, seen: map[string][]receipt{}, ending: make(chan struct{})}
	a.url = apptest.Listen(t, a.serve).URL
	t.Cleanup(func() { close(a.ending) }) // before the server waits for what is held
	return a
}

func (a *app) serve(c *apptest.Conn) {
	for {
		q, err := c.Next()
		if err != nil {
			return
		}
		if !a.next(q)(c) {
			return
		}
	}
}

func (a *app) next(q *apptest.Request) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := q.Header.Get("Amqp-Message-Id")
	n := len(a.seen[id])
	a.seen[id] = append(a.seen[id], receipt{time.Now(), q.Header, string(q.Body)})
	script := a.scripts[id]
	if len(script) == 0 {
		return status(http.StatusOK)
	}
	return script[min(n, len(script)-1)]
}

// on scripts the answers to a message, of which the last repeats.
func (a *app) on(id string, script ...answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scripts[id] = script
}

func (a *app) receipts(id string) []receipt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]receipt(nil), a.seen[id]...)
}

// await waits until the message has been received n times.
func (a *app) await(t testing.TB, id string, n int) {
	t.Helper()
	brokertest.Eventually(t, patience, "the app receives "+id+" "+strconv.Itoa(n)+" times", func() bool {
		return len(a.receipts(id)) >= n
	})
}

func status(code int, headers ...string) answer {
	return func(c *apptest.Conn) bool {
		c.Send(apptest.Status(code, headers...))
		return true
	}
}

// failing says no below 500: the breaker would pause the sidecar for an app that has nothing but 5xx, and with it the
// other tests that share it.
func failing() answer { return status(http.StatusConflict) }

func problem(code int, body string) answer {
	return func(c *apptest.Conn) bool {
		c.Send(strings.Join([]string{
			"HTTP/1.1 " + strconv.Itoa(code) + " Whatever", "Content-Type: application/problem+json", "Amqp-Reason: no such customer",
			"Content-Length: " + strconv.Itoa(len(body)), "", body,
		}, "\r\n"))
		return true
	}
}

// reset breaks the connection instead of an answer.
func reset() answer {
	return func(c *apptest.Conn) bool {
		c.Reset()
		return false
	}
}

// held answers when the gate is opened.
func (a *app) held(gate <-chan struct{}, then answer) answer {
	return func(c *apptest.Conn) bool {
		select {
		case <-gate:
			return then(c)
		case <-a.ending:
			return false
		}
	}
}
