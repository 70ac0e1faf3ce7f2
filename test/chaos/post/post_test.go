//go:build nightly

package post

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"sidecar/test/chaos/ledger"
)

// TestAppDoesNotListen: what could not be sent is sent again, and what broke is not.
func TestAppDoesNotListen(t *testing.T) {
	t.Parallel()
	c := &client{http: &http.Client{}}
	l := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for _, again := range []bool{false, true} { // the listener is there, and then it is not
		c.o.URL = l.URL
		for _, batch := range []bool{false, true} {
			m := &message{alias: Main}
			if batch {
				c.sendBatch(t.Context(), []*message{m})
			} else {
				c.send(t.Context(), m)
			}
			if got := m.conclude(); got != again {
				t.Errorf("batch %v: sent again %v, want %v: %+v", batch, got, again, m.record)
			}
			if !again && m.record.Result != ledger.Unknown {
				t.Errorf("batch %v: %s", batch, m.record.Result)
			}
		}
		l.Close()
	}
}
