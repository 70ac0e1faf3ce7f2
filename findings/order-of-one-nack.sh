#!/usr/bin/env bash
# order-of-one-nack.sh [VERSION]: the order of the messages of a quorum queue that one nack of all of them returns, and of
# the same number returned by nacks of 32.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-3.10}"
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// returned says whether n messages are in their order after nacks of so many each.
func returned(conn *amqp.Connection, n, each int) string {
	ch := must(conn.Channel())
	defer ch.Close()
	queue := "orders-" + strconv.Itoa(n) + "-" + strconv.Itoa(each)
	must(ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100}))
	check(ch.Confirm(false))
	for i := range n {
		c := must(ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{MessageId: strconv.Itoa(i)}))
		if !c.Wait() {
			panic("nacked")
		}
	}
	check(ch.Qos(n, 0, false))
	deliveries := must(ch.Consume(queue, "c", false, false, false, false, nil))
	for i := range n {
		if d := <-deliveries; d.MessageId != strconv.Itoa(i) || d.DeliveryTag != uint64(i+1) {
			panic("not in order before")
		}
	}
	check(ch.Cancel("c", false))
	for to := each; to < n+each; to += each {
		check(ch.Nack(uint64(min(to, n)), true, true))
	}
	for must(ch.QueueDeclarePassive(queue, true, false, false, false, nil)).Messages < n {
		time.Sleep(10 * time.Millisecond)
	}
	order := "kept"
	for i := range n {
		d, ok := must2(ch.Get(queue, true))
		if !ok {
			panic("a message is missing")
		}
		if d.MessageId != strconv.Itoa(i) {
			order = "lost"
		}
	}
	return order
}

func must2(d amqp.Delivery, ok bool, err error) (amqp.Delivery, bool) {
	check(err)
	return d, ok
}

func main() {
	conn := must(amqp.Dial(os.Getenv("AMQP_URL")))
	fmt.Println("32=" + returned(conn, 32, 32))
	fmt.Println("200=" + returned(conn, 200, 200))
	fmt.Println("pieces=" + returned(conn, 200, 32))
}
GO
all=lost
case $BROKER_VERSION in 4.*) all=kept ;; esac
out=$(timeout 300 ./program)
expect 'the order of 32 messages after one nack' kept "$(sed -n 's/^32=//p' <<<"$out")"
expect 'the order of 200 messages after one nack' "$all" "$(sed -n 's/^200=//p' <<<"$out")"
expect 'the order of 200 messages after nacks of 32' kept "$(sed -n 's/^pieces=//p' <<<"$out")"
