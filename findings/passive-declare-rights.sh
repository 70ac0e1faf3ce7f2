#!/usr/bin/env bash
# passive-declare-rights.sh [VERSION]: which answer users with no right, and with one, get to the passive declaration of a
# queue that exists, and of one that does not.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-4.3}"
user() { # NAME CONFIGURE WRITE READ
  "$BROKER_CTL" -q add_user "$1" secret >&2
  "$BROKER_CTL" -q set_permissions "$@" >&2
}
user nothing '^$' '^$' '^$'
user configure '.*' '^$' '^$'
user write '^$' '.*' '^$'
user read '^$' '^$' '.*'
go_program 'github.com/rabbitmq/amqp091-go@v1.16.0' <<'GO'
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	url := os.Getenv("AMQP_URL")
	must(must(must(amqp.Dial(url)).Channel()).QueueDeclare("here", true, false, false, false, nil))
	for _, user := range []string{"nothing", "configure", "write", "read"} {
		conn := must(amqp.Dial(strings.Replace(url, "guest:guest", user+":secret", 1)))
		fmt.Print(user, "=")
		for _, queue := range []string{"here", "missing"} {
			_, err := must(conn.Channel()).QueueDeclarePassive(queue, false, false, false, false, nil)
			code := "ok"
			if refused := (*amqp.Error)(nil); errors.As(err, &refused) {
				code = fmt.Sprint(refused.Code)
			}
			fmt.Print(queue, " ", code, " ")
		}
		fmt.Println()
	}
}
GO
nothing='here ok missing 404'
case $BROKER_VERSION in 4.[3-9]*) nothing='here 403 missing 403' ;; esac
out=$(timeout 60 ./program)
seen() { sed -n "s/^$1=\(.*\) $/\1/p" <<<"$out"; }
expect 'no right' "$nothing" "$(seen nothing)"
for right in configure write read; do
  expect "the right to $right" 'here ok missing 404' "$(seen $right)"
done
