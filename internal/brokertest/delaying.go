package brokertest

import (
	"strings"
	"syscall"
	"testing"
)

// delaying is the first version of RabbitMQ whose quorum queues delay retries themselves.
const delaying = "4.3"

// Delaying gives the test its place on a RabbitMQ 4.3: the node that all tests share where it is one, else a node
// beside it, which the first such test boots and such tests use at the same time. Call it where OwnNode would be
// called.
func Delaying(t testing.TB) {
	t.Helper()
	if !sharedDelays(t) {
		borrow(t, delaying, delaying, syscall.LOCK_SH)
	}
}

func sharedDelays(t testing.TB) bool {
	t.Helper()
	version := sharedNode(t).must(t, "rabbit_misc:version()")
	return strings.HasPrefix(version, `"`+delaying+".")
}
