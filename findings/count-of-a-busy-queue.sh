#!/usr/bin/env bash
# count-of-a-busy-queue.sh [VERSION]: what a passive declaration says of a quorum queue of three messages while its leader
# does nothing, as when it waits for a processor.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-4.3}"
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func leader(call string) {
	must(exec.Command(os.Getenv("BROKER_CTL"), "eval", `{ok, Q} = rabbit_amqqueue:lookup({resource, <<"/">>, queue, <<"q">>}), `+
		`sys:`+call+`(amqqueue:get_pid(Q)).`).Output())
}

func main() {
	ch := must(must(amqp.Dial(os.Getenv("AMQP_URL"))).Channel())
	must(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))
	must(0, ch.Confirm(false))
	for range 3 {
		must(must(ch.PublishWithDeferredConfirmWithContext(context.Background(), "", "q", false, false, amqp.Publishing{})).
			WaitContext(context.Background()))
	}
	count := func(when string) {
		asked := time.Now()
		q := must(ch.QueueDeclarePassive("q", true, false, false, false, nil))
		fmt.Printf("%s=%d messages, after 250 ms: %v\n", when, q.Messages, time.Since(asked) >= 250*time.Millisecond)
	}
	count("before")
	leader("suspend")
	count("busy")
	leader("resume")
	count("later")
}
GO
out=$(timeout 60 ./program)
seen() { sed -n "s/^$1=//p" <<<"$out"; }
expect before '3 messages, after 250 ms: false' "$(seen before)"
expect 'while the leader is busy' '0 messages, after 250 ms: true' "$(seen busy)"
expect later '3 messages, after 250 ms: false' "$(seen later)"
