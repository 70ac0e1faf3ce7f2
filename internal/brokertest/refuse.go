package brokertest

import (
	"fmt"
	"strings"
	"testing"

	"sidecar/internal/testkit/console"
)

// QueueLimit allows the test's virtual host n queues.
func QueueLimit(t testing.TB, n int) {
	t.Helper()
	Eval(t, fmt.Sprintf(`rabbit_vhost_limit:parse_set(%s, <<"{\"max-queues\":%d}">>, %s)`, console.Binary(VhostName(t)), n,
		console.Actor))
}

// NodeDown makes the broker answer about a classic queue as it does while the node that has the queue is down, and
// returns the words of that answer. From RabbitMQ 4.0 on that answer takes a minute and a half, and a cluster: the
// broker then goes on as before, and the words are those that a cluster was seen to send.
func NodeDown(t testing.TB, queue string) (says string, down bool) {
	t.Helper()
	if !strings.HasPrefix(Version(t), "3.") {
		return fmt.Sprintf("NOT_FOUND - failed to perform operation on queue '%s' in vhost '/' due to timeout", queue), false
	}
	Eval(t, fmt.Sprintf(`mnesia:dirty_delete(rabbit_queue, rabbit_misc:r(%s, queue, %s))`, console.Binary(VhostName(t)),
		console.Binary(queue)))
	return "NOT_FOUND - home node ", true
}
