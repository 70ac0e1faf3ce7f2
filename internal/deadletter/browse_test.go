package deadletter

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// kinds are dead-letter queues that a read must leave as they are: as the sidecar declares them, and as others do, with
// delivery limits that reads would soon use up.
var kinds = map[string]amqp.Table{
	"classic":                nil,
	"quorum without a limit": {"x-queue-type": "quorum", "x-delivery-limit": int64(1<<31 - 1)},
	"quorum that names none": {"x-queue-type": "quorum"},
	"quorum with 20":         {"x-queue-type": "quorum", "x-delivery-limit": int64(20)},
	"quorum with 3": {
		"x-queue-type": "quorum", "x-delivery-limit": int64(3), "x-max-length": int64(100_000), "x-overflow": "drop-head",
		"x-dead-letter-exchange": "nowhere", "x-quorum-initial-group-size": int64(1),
	},
	"quorum with 1": {"x-queue-type": "quorum", "x-delivery-limit": int64(1)},
}

// each runs do with a queue of every kind, or of the named ones.
func each(t *testing.T, do func(t *testing.T, r *rig, kind string), names ...string) {
	for kind, args := range kinds {
		if len(names) == 0 || slices.Contains(names, kind) {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, nil)
				r.redeclare(args)
				do(t, r, kind)
			})
		}
	}
}

func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, kind string) {
		r.park(r.numbered(40)...)
		reads := 8
		if kind == "quorum with 20" || kind == "quorum that names none" {
			reads = 22 // more than a limit of 20 allows
		}
		for i := range reads {
			want := 40
			s := Scan{}
			if i%2 == 0 {
				want, s.Limit = 5, 5
			}
			if views, sum := r.browse(Filter{}, s); len(views) != want || sum.Total != 40 || views[0].MessageID != "m0001" {
				t.Fatalf("read %d: %d messages, %+v", i, len(views), sum)
			}
		}
		left := r.drain(r.name)
		if got := ids(left); len(got) != 40 || !slices.IsSorted(got) {
			t.Fatalf("%d left: %v", len(got), got)
		}
		for _, d := range left {
			m := r.parked(d.MessageId, nil)
			for k, v := range m.Headers {
				if d.Headers[k] != v {
					t.Fatalf("%s: %s is %v, was %v", d.MessageId, k, d.Headers[k], v)
				}
			}
			if string(d.Body) != string(m.Body) || d.ContentType != m.ContentType || d.DeliveryMode != amqp.Persistent {
				t.Fatalf("%s has changed: %+v", d.MessageId, d)
			}
		}
	})
}

// TestOrderOverManyWindows: the messages of many windows, small and large, are seen in their order and keep it. Where what
// stays and what goes alternate, windows end while messages are under way.
func TestOrderOverManyWindows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(600)
		var staying []amqp.Publishing
		for i, m := range list {
			if i%2 == 1 {
				m.Headers["x-final-status-code"] = int32(409)
				continue
			}
			staying = append(staying, m)
		}
		list[451].Body = make([]byte, 3<<20) // the windows after it are small
		r.park(list...)
		views, sum := r.browse(Filter{}, Scan{})
		if sum.Scanned != 600 || sum.Total != 600 {
			t.Errorf("%+v", sum)
		}
		for i, v := range views {
			if v.MessageID != list[i].MessageId || v.Position != i+1 {
				t.Fatalf("message %d is %s at %d", i+1, v.MessageID, v.Position)
			}
		}
		p, err := r.Discard(t.Context(), Discard{Selection: Selection{Filter: filter(t, "status", "409")}}, nil)
		if err != nil || p.Done != 300 || p.Scanned != 600 {
			t.Errorf("%+v, %v", p, err)
		}
		r.kept(staying)
	}, "classic", "quorum without a limit")
}

func TestFilters(t *testing.T) {
	t.Parallel()
	plan := must.Get(topology.Build(topology.Options{Service: "svc"}))(t)
	q := New(Options{}, Owner{Plan: plan})[0]
	r := &rig{plan: plan}
	now := time.Now()
	at := func(ago time.Duration) string { return now.Add(-ago).UTC().Format("2006-01-02T15:04:05.000Z") }
	var list []Message
	correlated := []string{"trace-1", "trace-2", "", "", ""}
	for _, m := range []amqp.Publishing{
		r.parked("a", amqp.Table{"x-final-at": at(time.Hour), "tenant": "acme", "n": int32(7)}),
		r.parked("b", amqp.Table{"x-final-at": at(time.Minute), "x-final-status-code": int32(422), "x-final-reason": "park_status", "x-final-problem-type": "https://errors/stock"}),
		r.parked("c", amqp.Table{"x-final-at": nil, "x-final-status-code": nil, "x-final-error": "timeout: no answer from 10.0.0.7:8080 after 30s"}),
		r.parked("d", amqp.Table{"x-original-routing-key": "order/x.deleted", "x-final-reason": nil, "x-final-at": nil, "x-death": []any{
			amqp.Table{"queue": r.plan.Queue, "reason": "expired", "count": int64(1), "exchange": "orders", "routing-keys": []any{"order/x.deleted"}, "time": now.Add(-30 * time.Minute)},
		}}),
		{MessageId: "e"},
	} {
		m.Body = append(m.Body, "Viele GRÜßE aus \xff "+m.MessageId...)
		list = append(list, q.parse(&broker.Delivery{Delivery: amqp.Delivery{MessageId: m.MessageId, CorrelationId: correlated[len(list)], Headers: m.Headers, Body: m.Body}}, len(list)+1))
	}
	for _, c := range [][2]string{
		{"a b c d e", ""},
		{"a d", "status 503"},
		{"b", "status 4xx"},
		{"a b d", "status 4xx status 5xx"},
		{"c e", "status none"},
		{"a c", "reason max_retries"},
		{"d", "reason broker:expired older 10m"},
		{"a d", "older 10m"},
		{"b", "newer 10m"},
		{"d", "routing-key order*deleted"},
		{"a b c", "routing-key order.?reated"},
		{"c", "error TIMEOUT"},
		{"b", "error errors/stock"},
		{"a", "header tenant=ac*"},
		{"a b", "correlation-id trace-*"},
		{"a", "correlation-id trace-1 correlation-id TRACE-2"},
		{"", "correlation-id trace"},
		{"c", "text TimeOut"},
		{"b", "text errors/stock status 422"},
		{"a", "text TRACE-1"},
		{"d", `text "iD":"D"`},
		{"a b c d e", "text grüße"},
		{"a d", "text ß status 503"},
		{"", "text x-final"},
		{"a", "header n=7 header tenant"},
		{"", "header tenant=other"},
		{"", "header tenant header absent"},
		{"a b", "id a id " + list[1].Ref()},
		{"c", "group " + list[2].Group().ID},
		{"", "id none"},
		{"e", "reason none"},
		{"", "group none"},
		{"", "header n="},
		{"a", "header n"},
	} {
		var got []string
		f := filter(t, strings.Fields(c[1])...)
		for i := range list {
			if f.Match(&list[i]) {
				got = append(got, list[i].MessageID)
			}
		}
		if strings.Join(got, " ") != c[0] {
			t.Errorf("%s: %v, want %s", c[1], got, c[0])
		}
		if ids := f.Unmet(); len(ids) > 0 != (c[1] == "id none") {
			t.Errorf("%s: unmet are %v", c[1], ids)
		}
	}
}

// TestTextInLargeBodies: a body is searched piece by piece, and a text is found also where two pieces meet.
func TestTextInLargeBodies(t *testing.T) {
	t.Parallel()
	for _, fill := range []string{"x", "Ü", "\xbf", "İ"} { // the last is shorter in lower case
		for _, text := range []string{"N", "needle", "ÜBEL", "İK", strings.Repeat("long ", searchPiece/4)} {
			f := filter(t, "text", strings.ToUpper(text))
			for at := searchPiece - len(text) - 9; at < searchPiece+9; at++ {
				body := strings.Repeat(fill, max(0, at)/len(fill)) + text
				if m := (Message{Properties: amqp.Delivery{Body: []byte(body + fill)}}); !f.Match(&m) {
					t.Fatalf("%.20q is not found behind %d bytes of %q", text, at, fill)
				}
				if len(text) > 9 {
					at += searchPiece / 8
				}
			}
			m := Message{Properties: amqp.Delivery{Body: []byte(strings.Repeat(fill, 2*searchPiece) + text[:len(text)-1])}}
			if text != "N" && f.Match(&m) {
				t.Errorf("%.20q is found in a body that ends before it does", text)
			}
		}
	}
}
