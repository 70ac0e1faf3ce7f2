package declare

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// TestCountOfABusyQueue: for a quorum queue that does not answer in time the broker answers, with zeros.
func TestCountOfABusyQueue(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	s := session(t, url)
	queue := brokertest.Queue(t, url, brokertest.Name(t, "busy"), amqp.Table{topology.ArgType: topology.TypeQuorum})
	brokertest.Send(t, url, queue, "one", "two")
	brokertest.WaitReady(t, url, queue, 2)
	brokertest.Busy(t, queue)
	if n, err := Ready(t.Context(), s, queue); n != 2 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
}
