package config

import (
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
	Exchanges map[string]string `env:"PUBLISH_EXCHANGES" allowed:"'alias=exchange', separated by commas; an alias has letters, digits, '-', '_' and '.'"`

	// Routing keys that may be published with. `*` stands for any characters, `?` for one. An empty value means
	// unset here, too: all keys. To publish nothing, leave `SIDECAR_PUBLISH_ADDR` unset.
	RoutingKeys []string `env:"PUBLISH_ROUTING_KEYS" envDefault:"*" allowed:"distinct routing keys or patterns separated by commas"`

	// Time for one message, from its arrival to the broker's confirm. Without an answer in time the outcome is unknown:
	// 504.
	Timeout time.Duration `env:"PUBLISH_TIMEOUT" envDefault:"10s" range:"10ms..10m"`
}

func (l *loader) checkPublish() {
	const exchanges, keys = "SIDECAR_PUBLISH_EXCHANGES", "SIDECAR_PUBLISH_ROUTING_KEYS"
	for _, alias := range slices.Sorted(maps.Keys(l.cfg.Publish.Exchanges)) {
		exchange := l.cfg.Publish.Exchanges[alias]
		if len(alias) > maxIdentifier || !aliasPattern.MatchString(alias) {
			l.reject(exchanges, "%s is not an alias", shown(alias))
		} else if err := checkShortString(exchange); err != nil {
			l.reject(exchanges, "%s %v", shown(exchange), err)
		}
	}
	for _, key := range l.cfg.Publish.RoutingKeys {
		if err := checkShortString(key); err != nil {
			l.reject(keys, "%s %v", shown(key), err)
		}
	}
}
