package config

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestAMQPURLMeansTheSameToTheClient compares what is documented, and what checks rely on, with the client library.
func TestAMQPURLMeansTheSameToTheClient(t *testing.T) {
	t.Parallel()
	for raw, vhost := range map[string]string{
		"amqp://h": "/", "amqp://h/": "/", "amqp://h/%2f": "/", "amqp://h/%2F": "/", "amqp://h:1234/orders": "orders", "amqps://me@h/a%2fb": "a/b",
		"amqp://u:p@ss@h/%40x": "@x", "amqps://u:p%40%2f%3a%23@[::1]:5671/v": "v", "amqp://h/%2fx": "/x",
	} {
		e, err := parseAMQPURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		u, err := amqp.ParseURI(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if u.Vhost != vhost {
			t.Errorf("%s: vhost %q, documented is %q", raw, u.Vhost, vhost)
		}
		if u.Host != e.Hostname() || u.Scheme != e.Scheme || e.User != nil && u.Username != e.User.Username() || e.User == nil && u.Username != "guest" {
			t.Errorf("%s: the client reads %+v, the checks %+v", raw, u, e)
		}
	}
}
