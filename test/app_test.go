package test

import (
	"fmt"
	"net"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
	proxykit "sidecar/internal/testkit/proxy"
)

// delivery is one request the app received.
type delivery = apptest.Request

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
	t testing.TB
}

func newApp(t testing.TB) *app {
	t.Helper()
	return &app{apptest.NewApp(t), t}
}

// freeAddr returns a loopback address that stays free while nothing listens there on purpose.
func freeAddr(t testing.TB) string {
	t.Helper()
	return must.Get(proxykit.FreeAddr())(t)
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	return must.Get(apptest.ListenWithin(patience, addr))(t)
}

func (a *app) url() string { return a.URL + "/" }
func (a *app) total() int  { return len(a.Requests()) }

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
	a.Otherwise(func(d *delivery) apptest.Reply { return f(d).reply() })
}

// await waits for the nth receipt of an id and returns all of them.
func (a *app) await(id string, n int) []*delivery {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("receipt %d of message %q", n, id), func() bool { return len(a.Seen(id)) >= n })
	return a.Seen(id)
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
