package topology

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// TestDefinitions: what is imported is what would have been declared. All of it goes in one file, because rabbitmqctl
// takes its time.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	plans := variants(t)
	all := definitions{}
	for _, p := range plans {
		b, err := p.Definitions(path(t, url))
		if err != nil {
			t.Fatal(err)
		}
		var d definitions
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		all.Exchanges, all.Queues = append(all.Exchanges, d.Exchanges...), append(all.Queues, d.Queues...)
		all.Bindings = append(all.Bindings, d.Bindings...)
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	importDefinitions(t, b)
	for name, p := range plans {
		t.Run(name, func(t *testing.T) {
			fits(t, url, p, ModeVerify)
			for _, w := range p.Waits {
				publish(t, url, w.Exchange, w.Key, amqp.Publishing{})
				brokertest.Get(t, url, p.Queue, soon)
			}
			publish(t, url, p.Park.Exchange, p.Park.Key, amqp.Publishing{})
			fits(t, url, p, ModeDeclare)
		})
	}
}

// importDefinitions does inside the node what rabbitmqctl import_definitions does.
func importDefinitions(t testing.TB, definitions []byte) {
	t.Helper()
	brokertest.Eval(t, fmt.Sprintf(`rabbit_definitions:import_raw(base64:decode("%s"))`, base64.StdEncoding.EncodeToString(definitions)))
}
