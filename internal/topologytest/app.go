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

// consumes waits until the sidecar consumes.
func (r *rig) consumes(t testing.TB) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
}

func status(code int, headers ...string) apptest.Reply {
	return apptest.Say(apptest.Status(code, headers...))
}

// failing says no below 500: the breaker would pause the sidecar for an app that has nothing but 5xx, and with it the
// other tests that share it.
func failing() apptest.Reply { return status(http.StatusConflict) }

// parking says that the message is to be parked at once.
func parking() apptest.Reply { return status(http.StatusConflict, "Amqp-Disposition: park") }

func problem(code int, body string) apptest.Reply {
	return apptest.Say(apptest.Full(code, body, "Content-Type: application/problem+json", "Amqp-Reason: no such customer"))
}
