package dispatch

import (
	"testing"
	"time"

	"sidecar/internal/apptest"
)

// An idle connection is closed without any further message.
func TestIdleConnectionIsReaped(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	script := func(c *apptest.Conn) {
		apptest.Answer(apptest.Status(204))(c)
		closed <- struct{}{}
	}
	secure, trust := apptest.ListenTLS(t, script)
	for _, s := range []*apptest.Server{apptest.Listen(t, script), secure} {
		target := newTarget(t, s.URL, func(o *Options) { o.IdleTimeout, o.TLS = 10*time.Millisecond, trust })
		for range 2 {
			wantStatus(t, dispatch(t, target, sample()), 204)
			<-closed
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

func TestKeepAliveHintIsKept(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204, "Keep-Alive: timeout=0")))
	target := newTarget(t, s.URL)
	wantStatuses(t, target, 3, 204)
	wantSeen(t, s, 3, 3)
}
