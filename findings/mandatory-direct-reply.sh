#!/usr/bin/env bash
# mandatory-direct-reply.sh [VERSION]: whether a mandatory message to a direct reply-to address is returned while the
# requester is there, and after it has gone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-3.10}"
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func do(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	background := context.Background()
	conn := must(amqp.Dial(os.Getenv("AMQP_URL")))
	requester := must(conn.Channel())
	replies := must(requester.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil))
	server := must(conn.Channel())
	must(server.QueueDeclare("requests", false, true, false, false, nil))
	requests := must(server.Consume("requests", "", true, false, false, false, nil))
	do(requester.PublishWithContext(background, "", "requests", false, false, amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to"}))
	address := (<-requests).ReplyTo
	do(server.Confirm(false))
	returns := server.NotifyReturn(make(chan amqp.Return, 1))
	reply := func(when string) {
		c := must(server.PublishWithDeferredConfirmWithContext(background, "", address, true, false, amqp.Publishing{Body: []byte(when)}))
		must(c.WaitContext(background)) // a return comes before its confirm
		select {
		case <-returns:
			fmt.Println(when + "=returned")
		default:
			fmt.Println(when + "=not returned")
		}
	}
	asks := func(when string) {
		question := must(conn.Channel())
		_, err := question.QueueDeclarePassive(address, false, false, false, false, nil)
		fmt.Printf("declare %s=%t\n", when, err == nil)
	}
	reply("there")
	fmt.Printf("received=%s\n", (<-replies).Body)
	asks("there")
	do(requester.Close())
	reply("gone")
	asks("gone")
}
GO
there=returned gone=returned
case $BROKER_VERSION in 4.[3-9]*) there='not returned' gone='not returned' ;; esac
out=$(timeout 60 ./program)
seen() { sed -n "s/^$1=//p" <<<"$out"; }
expect 'a mandatory reply to a requester that is there' "$there" "$(seen there)"
expect 'that the requester received' there "$(seen received)"
expect 'a mandatory reply to a requester that has gone' "$gone" "$(seen gone)"
expect 'a passive declaration of the address succeeds while the requester is there' true "$(seen 'declare there')"
expect 'and after it has gone' false "$(seen 'declare gone')"
