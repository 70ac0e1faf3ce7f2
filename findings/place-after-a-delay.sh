#!/usr/bin/env bash
# place-after-a-delay.sh: where a message of a quorum queue of RabbitMQ 4.3 returns to when its delay for a retry is over.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker 4.3
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
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
	if err := ch.Confirm(false); err != nil {
		panic(err)
	}
	publish := func(body string) {
		c := must(ch.PublishWithDeferredConfirm("", "jobs", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))
		if !must(c.WaitContext(context.Background())) {
			panic("refused")
		}
	}
	must(ch.QueueDeclare("jobs", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delayed-retry-type": "failed", "x-delayed-retry-min": 1000, "x-delayed-retry-max": 1000,
	}))
	publish("retried")
	first, _, err := ch.Get("jobs", false)
	if err != nil {
		panic(err)
	}
	if err := first.Reject(true); err != nil {
		panic(err)
	}
	publish("waiting1")
	publish("waiting2")
	time.Sleep(3 * time.Second) // the delay is over; nothing was consumed meanwhile
	var order []string
	for range 3 {
		d, ok, err := ch.Get("jobs", true)
		if err != nil || !ok {
			panic(fmt.Sprint(ok, err))
		}
		order = append(order, string(d.Body))
	}
	fmt.Println("order:", strings.Join(order, " "))
}
GO
out=$(timeout 60 ./program)
expect 'order after the delay' 'retried waiting1 waiting2' "$(sed -n 's/^order: //p' <<<"$out")"
