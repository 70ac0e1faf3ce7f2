package dispatch

import (
	"testing"

	"sidecar/internal/apptest"
)

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
