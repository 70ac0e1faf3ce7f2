#!/usr/bin/env bash
# delivery-count-of-a-publisher.sh [VERSION]: the outcome of a header x-delivery-count that a publisher sends to a quorum
# queue, in deliveries and in the dead letter, with and without a return to the queue before.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-3.10}"
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	ch := must(must(amqp.Dial(os.Getenv("AMQP_URL"))).Channel())
	must(ch.QueueDeclare("dead", true, false, false, false, nil))
	must(ch.QueueDeclare("work", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	}))
	get := func(queue string) amqp.Delivery {
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if d, ok, err := ch.Get(queue, false); err == nil && ok {
				return d
			}
		}
		panic("nothing in " + queue)
	}
	show := func(d amqp.Delivery) string { return fmt.Sprintf("%v ", d.Headers["x-delivery-count"]) }
	for _, returns := range []int{0, 1, 2} {
		if err := ch.Publish("", "work", false, false, amqp.Publishing{Headers: amqp.Table{"x-delivery-count": "sent"}}); err != nil {
			panic(err)
		}
		fmt.Print(returns, "=")
		for i := 0; ; i++ {
			d := get("work")
			fmt.Print(show(d))
			if err := d.Nack(false, i < returns); err != nil {
				panic(err)
			}
			if i == returns {
				break
			}
		}
		d := get("dead")
		fmt.Print("dead ", show(d), "\n")
		d.Ack(false)
	}
}
GO
out=$(timeout 120 ./program)
seen() { sed -n "s/^$1=\(.*\) $/\1/p" <<<"$out"; }
case $BROKER_VERSION in
3.*) never='0' once='0 1' twice='0 1 2' ;;
4.0.*) never='sent' once='sent 1' twice='sent 1 2' ;;
*) never='sent' once='sent sent' twice='sent sent sent' ;;
esac
expect 'delivered once' "$never dead sent" "$(seen 0)"
expect 'returned once' "$once dead sent" "$(seen 1)"
expect 'returned twice' "$twice dead sent" "$(seen 2)"
