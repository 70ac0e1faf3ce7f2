package topologytest

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// patience is how long a test waits for what has to happen. Nothing is asserted about it: a slow machine is no fault.
const patience = 90 * time.Second

// await waits until the app has received the message n times.
func (r *rig) await(t testing.TB, id string, n int) {
	t.Helper()
	brokertest.Eventually(t, patience, "the app receives "+id+" "+strconv.Itoa(n)+" times", func() bool {
		return len(r.app.Seen(id)) >= n
	})
}

func status(code int, headers ...string) apptest.Reply {
	return apptest.Say(apptest.Status(code, headers...))
}

// failing says no below 500: the breaker would pause the sidecar for an app that has nothing but 5xx, and with it the
// other tests that share it.
func failing() apptest.Reply { return status(http.StatusConflict) }

func problem(code int, body string) apptest.Reply {
	return apptest.Say(apptest.Full(code, body, "Content-Type: application/problem+json", "Amqp-Reason: no such customer"))
}
