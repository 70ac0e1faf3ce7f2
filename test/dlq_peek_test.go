package test

import (
	"reflect"
	"slices"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDLQReadingChangesNothing in queues as the sidecar declares them, and in quorum queues as another service has
// declared them, with a delivery limit that reads would soon use up and with the broker's own. Neither places nor
// content nor count change, whether a part or all of it is read.
func TestDLQReadingChangesNothing(t *testing.T) {
	t.Parallel()
	quorum := func(limit any) amqp.Table {
		args := amqp.Table{"x-queue-type": "quorum"}
		if limit != nil {
			args["x-delivery-limit"] = limit
		}
		return args
	}
	for name, args := range map[string]amqp.Table{"ours": nil, "classic": nil, "limit 3": quorum(int32(3)), "no limit named": quorum(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", map[bool]string{true: "classic", false: "quorum"}[name == "classic"]).declared()
			if args != nil {
				sc.with("TOPOLOGY_MODE", "none")
				sc.deleteQueue(sc.dlq())
				if err := sc.declare(sc.dlq(), args); err != nil {
					t.Fatal(err)
				}
			}
			ids := numbered("m", 20)
			var list []amqp.Publishing
			for i, id := range ids {
				m := parked(id, 500+i%3)
				m.Headers["x-any"] = amqp.Table{"n": int64(i), "b": []byte{0, 0xff, byte(i)}}
				m.Body = []byte{0, byte(i), 0xff}
				list = append(list, m)
			}
			sc.park(list...)
			before := sc.cli(0, "export", "-").stdout
			unchanged := func() {
				t.Helper()
				if now := sc.cli(0, "export", "-").stdout; now != before {
					t.Fatalf("after reading:\n%s\nbefore:\n%s", now, before)
				}
			}
			for range 5 { // of which each command reads all: more often than the broker's own limit of 20
				for _, look := range [][]string{{"groups"}, {"redrive", "--all", "--dry-run"}, {"discard", "--all", "--dry-run"}} {
					sc.cli(0, look...)
				}
				unchanged()
			}
			for _, look := range [][]string{
				{"list", "--limit", "5"}, {"list", "--scan", "5"}, {"show", "m-3"}, {"export", "--limit", "3"}, {"redrive", "--all", "--limit", "1", "--dry-run"},
			} {
				sc.cli(0, look...)
			}
			unchanged()
			if got := sc.listedIDs(); !slices.Equal(got, ids) {
				t.Errorf("%q", got)
			}
			for i, d := range sc.take(sc.dlq(), len(ids)) {
				for _, ofTheQueue := range []string{"x-delivery-count", "x-acquired-count"} {
					delete(d.Headers, ofTheQueue)
				}
				m := list[i]
				if d.MessageId != m.MessageId || string(d.Body) != string(m.Body) || d.ContentType != m.ContentType || d.DeliveryMode != amqp.Persistent ||
					!reflect.DeepEqual(d.Headers, m.Headers) {
					t.Errorf("at place %s: %+v", strconv.Itoa(i+1), d)
				}
			}
			if n := sc.ready(sc.dlq()); n != 0 {
				t.Errorf("%d messages too many", n)
			}
		})
	}
}
