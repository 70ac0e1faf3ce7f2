#!/usr/bin/env bash
# purge-of-delayed-messages.sh: what a purge does to messages that a quorum queue of RabbitMQ 4.3 delays for a retry.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker 4.3
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"context"
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
	const tenMinutes = 600_000
	must(ch.QueueDeclare("jobs", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delayed-retry-type": "failed", "x-delayed-retry-min": tenMinutes, "x-delayed-retry-max": tenMinutes,
	}))
	if err := ch.Confirm(false); err != nil {
		panic(err)
	}
	for range 5 {
		c := must(ch.PublishWithDeferredConfirm("", "jobs", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent}))
		if !must(c.WaitContext(context.Background())) {
			panic("refused")
		}
	}
	deliveries := must(ch.Consume("jobs", "", false, false, false, false, nil))
	for range 5 {
		if err := (<-deliveries).Reject(true); err != nil {
			panic(err)
		}
	}
	time.Sleep(2 * time.Second) // the rejects are not answered
	fmt.Println("ready:", must(ch.QueueDeclarePassive("jobs", true, false, false, false, nil)).Messages)
	fmt.Println("purged:", must(ch.QueuePurge("jobs", false)))
	fmt.Println("purged again:", must(ch.QueuePurge("jobs", false)))
}
GO
out=$(timeout 60 ./program)
expect 'messages ready while five are delayed' 0 "$(sed -n 's/^ready: //p' <<<"$out")"
expect 'messages that a purge removed' 5 "$(sed -n 's/^purged: //p' <<<"$out")"
expect 'messages that a second purge removed' 0 "$(sed -n 's/^purged again: //p' <<<"$out")"
