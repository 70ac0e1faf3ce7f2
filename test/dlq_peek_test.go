package test

import (
	"reflect"
	"slices"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDLQPeekManyTimes at quorum queues: as the sidecar declares its own, and as somebody else has declared one, with a
// delivery limit that looking would soon use up and with the broker's own. Neither places nor content nor count change,
// whether people look at a part or at all of it.
func TestDLQPeekManyTimes(t *testing.T) {
	t.Parallel()
	quorum := func(limit any) amqp.Table {
		args := amqp.Table{"x-queue-type": "quorum"}
		if limit != nil {
			args["x-delivery-limit"] = limit
		}
		return args
	}
	for name, args := range map[string]amqp.Table{"ours": nil, "limit 3": quorum(int32(3)), "no limit named": quorum(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", "quorum").declared()
			if args != nil {
				sc.with("TOPOLOGY_MODE", "none")
				sc.deleteQueue(sc.dlq())
				if err := sc.declare(sc.dlq(), args); err != nil {
					t.Fatal(err)
				}
			}
			ids := numbered("m", 60)
			var list []amqp.Publishing
			for i, id := range ids {
				m := parked(id, 500+i%3)
				m.Headers["x-any"] = amqp.Table{"n": int64(i), "b": []byte{0, 0xff, byte(i)}}
				m.Body = []byte{0, byte(i), 0xff}
				list = append(list, m)
			}
			sc.park(list...)
			before := sc.cli(0, "export", "-").stdout
			for i := range 12 {
				switch i % 4 {
				case 0:
					sc.cli(0, "list", "--limit", "5")
				case 1:
					sc.cli(0, "groups")
				case 2:
					sc.cli(0, "show", ids[i])
				case 3:
					if now := sc.cli(0, "export", "-").stdout; now != before {
						t.Fatalf("after %d looks:\n%s\nbefore:\n%s", i, now, before)
					}
				}
			}
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
