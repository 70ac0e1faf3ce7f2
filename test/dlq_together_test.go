package test

import amqp "github.com/rabbitmq/amqp091-go"

// parkMany parks messages with those ids at once.
func (sc *scene) parkMany(status int, ids ...string) {
	sc.t.Helper()
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = parked(id, status)
	}
	sc.park(list...)
}
