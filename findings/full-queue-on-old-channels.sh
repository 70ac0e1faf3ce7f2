#!/usr/bin/env bash
# full-queue-on-old-channels.sh [VERSION]: whether a quorum queue that was full confirms again on the channels on which
# it nacked, after the policy that limited it is removed.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-3.10}"
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

func ctl(args ...string) {
	if out, err := exec.Command(os.Getenv("BROKER_CTL"), args...).CombinedOutput(); err != nil {
		panic(string(out))
	}
}

func confirmed(ch *amqp.Channel, queue string) bool {
	c := must(ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, true, false, amqp.Publishing{}))
	return must(c.WaitContext(context.Background()))
}

func main() {
	conn := must(amqp.Dial(os.Getenv("AMQP_URL")))
	open := func() *amqp.Channel {
		ch := must(conn.Channel())
		if err := ch.Confirm(false); err != nil {
			panic(err)
		}
		return ch
	}
	old := open()
	must(old.QueueDeclare("orders", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))
	must(old.QueueDeclare("other", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))
	ctl("set_policy", "limit", "^orders$", `{"max-length":1,"overflow":"reject-publish"}`)
	for confirmed(old, "orders") {
		time.Sleep(100 * time.Millisecond)
	}
	ctl("clear_policy", "limit")
	for !confirmed(open(), "orders") {
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Println("new=confirmed")
	acks, nacks := 0, 0
	for range 20 {
		if !confirmed(old, "other") {
			panic("the other queue is not limited")
		}
		if confirmed(old, "orders") {
			acks++
		} else {
			nacks++
		}
		time.Sleep(time.Second)
	}
	fmt.Fprintf(os.Stderr, "on the old channel, in 20 s: %d confirmed, %d nacked\n", acks, nacks)
	switch {
	case acks == 0:
		fmt.Println("old=nacked")
	case nacks == 0:
		fmt.Println("old=confirmed")
	default:
		fmt.Println("old=both")
	}
}
GO
old=nacked
case $BROKER_VERSION in 4.*) old=confirmed ;; esac
out=$(timeout 300 ./program)
expect 'without the policy, on a new channel' confirmed "$(sed -n 's/^new=//p' <<<"$out")"
expect 'without the policy, for 20 s on the old channel' "$old" "$(sed -n 's/^old=//p' <<<"$out")"
