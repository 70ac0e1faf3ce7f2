package config

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// DefaultAlias is the alias of the exchange that requests reach without any configuration: the plan's main exchange.
const DefaultAlias = "default"

// Publish is the listener that takes messages from the app.
type Publish struct {
	// Where the app POSTs messages to be published: `127.0.0.1:9092`. Unset: no such listener. Needs
	// `SIDECAR_PUBLISH_TOKEN` when it can be reached from other machines.
	Addr string `env:"PUBLISH_ADDR" check:"listener" otherwise:"off" allowed:"'host:port', the port is 0 to 65535"`

	// Asked for as `Authorization: Bearer …` on that listener.
	Token Secret `env:"PUBLISH_TOKEN" check:"longtoken" allowed:"at least 16 visible ASCII characters, no spaces"`

	// Exchanges that may be published to besides the service's main exchange, which is `default` unless that is in the
	// list: `orders=shop.orders,audit=audit.events`. The path holds the first part, the alias. `amq.default` is the
	// broker's default exchange, whose routing keys are names of queues. Rows of the outbox that name no exchange go to
	// `default`, too.
	Exchanges map[string]string `env:"PUBLISH_EXCHANGES" check:"aliases" allowed:"'alias=exchange', separated by commas; an alias has letters, digits, '-', '_' and '.'"`

	// Routing keys that may be published with. `*` stands for any characters, `?` for one. An empty value means
	// unset here, too: all keys. To publish nothing, leave `SIDECAR_PUBLISH_ADDR` unset.
	RoutingKeys []string `env:"PUBLISH_ROUTING_KEYS" check:"keys" envDefault:"*" allowed:"distinct routing keys or patterns separated by commas"`

	// Time for one message, from its arrival to the broker's confirm. Without an answer in time the outcome is unknown:
	// 504.
	Timeout time.Duration `env:"PUBLISH_TIMEOUT" envDefault:"10s" range:"10ms..10m"`
}

func checkAliases(v string) error {
	exchanges, _ := parsePairs(v)
	for _, alias := range slices.Sorted(maps.Keys(exchanges)) {
		if len(alias) > maxIdentifier || !aliasPattern.MatchString(alias) {
			return fmt.Errorf("%s is not an alias", shown(alias))
		}
		if err := checkItems(exchanges[alias]); err != nil {
			return err
		}
	}
	return nil
}
