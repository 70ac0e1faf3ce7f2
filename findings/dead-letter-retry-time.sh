#!/usr/bin/env bash
# dead-letter-retry-time.sh [VERSION]: when a dead letter that a full queue refused is tried again. Takes seven minutes.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-4.3}"
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
	quorum := func(name string, args amqp.Table) {
		args["x-queue-type"], args["x-overflow"] = "quorum", "reject-publish"
		must(ch.QueueDeclare(name, true, false, false, false, args))
	}
	quorum("target", amqp.Table{"x-max-length": 5})
	quorum("source", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target", "x-dead-letter-strategy": "at-least-once"})
	send := func(queue, id string) {
		if err := ch.PublishWithContext(context.Background(), "", queue, false, false, amqp.Publishing{MessageId: id}); err != nil {
			panic(err)
		}
	}
	for range 10 { // more than the limit: a queue takes some too many before it refuses
		send("target", "fills the queue")
	}
	time.Sleep(2 * time.Second)
	deliveries := must(ch.Consume("source", "", false, false, false, false, nil))
	refused := map[string]time.Time{}
	reject := func(id string) {
		send("source", id)
		if err := (<-deliveries).Reject(false); err != nil {
			panic(err)
		}
		refused[id] = time.Now()
	}
	reject("first")
	time.Sleep(60 * time.Second)
	reject("a minute later")
	time.Sleep(20 * time.Second)
	must(ch.QueuePurge("target", false))
	room := time.Now()
	for range 2 {
		for {
			d, ok, err := ch.Get("target", true)
			if err != nil {
				panic(err)
			}
			if ok && refused[d.MessageId].IsZero() {
				panic("the queue was not empty")
			}
			if ok {
				fmt.Fprintf(os.Stderr, "%s: %v after it was refused, %v after there was room\n", d.MessageId,
					time.Since(refused[d.MessageId]).Round(time.Second), time.Since(room).Round(time.Second))
				fmt.Printf("%s=%d\n", d.MessageId, int(time.Since(refused[d.MessageId]).Minutes()+0.5))
				break
			}
			time.Sleep(time.Second)
		}
	}
}
GO
out=$(timeout 900 ./program)
printf '%s\n' "$out"
expect 'minutes until the first message is tried again' 3 "$(sed -n 's/^first=//p' <<<"$out")"
expect 'minutes until one that was refused a minute later is tried again' 5 "$(sed -n 's/^a minute later=//p' <<<"$out")"
