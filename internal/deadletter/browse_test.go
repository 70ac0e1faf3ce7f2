package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
)

// kinds are dead-letter queues that a look must leave as they are: as the sidecar declares them, and as others do, with
// delivery limits that looking would soon use up.
var kinds = map[string]amqp.Table{
	"classic":                nil,
	"quorum without a limit": {"x-queue-type": "quorum", "x-delivery-limit": int64(1<<31 - 1)},
	"quorum that names none": {"x-queue-type": "quorum"},
	"quorum with 20":         {"x-queue-type": "quorum", "x-delivery-limit": int64(20)},
	"quorum with 3":          {"x-queue-type": "quorum", "x-delivery-limit": int64(3)},
	"quorum with 1":          {"x-queue-type": "quorum", "x-delivery-limit": int64(1)},
}

func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	for name, args := range kinds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.redeclare(args)
			ch := brokertest.Channel(t, r.url)
			for _, m := range r.numbered(60) {
				brokertest.Publish(t, ch, "", r.name, m)
			}
			brokertest.WaitReady(t, r.url, r.name, 60)
			for look := range 50 {
				want := 60
				s := Scan{}
				if look%2 == 0 {
					want, s.Limit = 5, 5
				}
				if views, sum := r.browse(Filter{}, s); len(views) != want || sum.Total != 60 || views[0].MessageID != "m0001" {
					t.Fatalf("look %d: %d messages, %+v", look, len(views), sum)
				}
			}
			left := r.drain(r.name)
			if got := ids(left); len(got) != 60 || !slices.IsSorted(got) {
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
}

// TestOrderOverManyWindows: the messages of many windows, small and large, are seen in their order and keep it.
func TestOrderOverManyWindows(t *testing.T) {
	t.Parallel()
	for _, change := range []struct {
		name string
		args amqp.Table
	}{{"classic", nil}, {"quorum", kinds["quorum without a limit"]}} {
		t.Run(change.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.redeclare(change.args)
			list := r.numbered(2500)
			list[100].Body = make([]byte, 3<<20) // the windows after it are small
			r.park(list...)
			views, sum := r.browse(Filter{}, Scan{})
			if sum.Scanned != 2500 || !sum.Complete() {
				t.Errorf("%+v", sum)
			}
			for i, v := range views {
				if v.MessageID != list[i].MessageId || v.Position != i+1 {
					t.Fatalf("message %d is %s at %d", i+1, v.MessageID, v.Position)
				}
			}
			p, err := r.Discard(t.Context(), Selection{Filter: filter(t, "id", "m0001", "id", "m0007", "id", "m1500", "id", "m2500")}, false, nil)
			if err != nil || p.Done != 4 || p.Scanned != 2500 {
				t.Errorf("%+v, %v", p, err)
			}
			if got := ids(r.drain(r.name)); len(got) != 2496 || !slices.IsSorted(got) {
				t.Errorf("%d left, sorted: %v", len(got), slices.IsSorted(got))
			}
		})
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	now := time.Now()
	at := func(ago time.Duration) string { return now.Add(-ago).UTC().Format("2006-01-02T15:04:05.000Z") }
	r.park(
		r.parked("a", amqp.Table{"x-final-at": at(time.Hour), "tenant": "acme", "n": int32(7)}),
		r.parked("b", amqp.Table{"x-final-at": at(time.Minute), "x-final-status-code": int32(422), "x-final-reason": "park_status", "x-final-problem-type": "https://errors/stock"}),
		r.parked("c", amqp.Table{"x-final-at": nil, "x-final-status-code": nil, "x-final-error": "timeout: no answer from 10.0.0.7:8080 after 30s"}),
		r.parked("d", amqp.Table{"x-original-routing-key": "order/x.deleted", "x-final-reason": nil, "x-final-at": nil, "x-death": []any{
			amqp.Table{"queue": r.plan.Queue, "reason": "expired", "count": int64(1), "exchange": "orders", "routing-keys": []any{"order/x.deleted"}, "time": now.Add(-30 * time.Minute)},
		}}),
	)
	refs, _ := r.browse(Filter{}, Scan{})
	for want, conditions := range map[string][]string{
		"[a b c d]": {},
		"[a d]":     {"status", "503"},
		"[b]":       {"status", "4xx"},
		"[a b d]":   {"status", "4xx", "status", "5xx"},
		"[c]":       {"status", "none"},
		"[a c]":     {"reason", "max_retries"},
		"[d]":       {"reason", "broker:expired", "older", "10m"},
		"[a d ]":    {"older", "10m"},
		"[b ]":      {"newer", "10m"},
		"[d ]":      {"routing-key", "order*deleted"},
		"[a b c]":   {"routing-key", "order.?reated"},
		"[c ]":      {"error", "TIMEOUT"},
		"[b  ]":     {"error", "errors/stock"},
		"[a]":       {"header", "tenant=ac*"},
		"[a ]":      {"header", "n=7", "header", "tenant"},
		"[]":        {"header", "tenant=other"},
		"[a b]":     {"id", "a", "id", refs[1].Ref},
		"[c  ]":     {"group", refs[2].Group},
		"[ ]":       {"id", "nobody"},
		"[  ]":      {"group", "nobody"},
	} {
		views, sum := r.browse(filter(t, conditions...), Scan{})
		got := []string{}
		for _, v := range views {
			got = append(got, v.MessageID)
		}
		if fmt.Sprint(got) != spaceless(want) || sum.Matched != len(got) {
			t.Errorf("%v: %v, want %s", conditions, got, want)
		}
	}
	groups, _, err := r.Groups(t.Context(), Filter{}, Scan{})
	if err != nil || len(groups) != 4 {
		t.Errorf("%+v, %v", groups, err)
	}
}

// spaceless takes out the spaces that only make map keys different.
func spaceless(s string) string {
	b := []byte(s)
	for len(b) > 2 && b[len(b)-2] == ' ' {
		b = append(b[:len(b)-2], ']')
	}
	return string(b)
}

func TestScanIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(100)...)
	if views, sum := r.browse(filter(t, "id", "m0050"), Scan{Depth: 40}); len(views) != 0 || sum.Scanned != 40 || sum.Complete() {
		t.Errorf("%+v", sum)
	}
	if views, sum := r.browse(filter(t, "reason", "max_retries"), Scan{Limit: 3}); len(views) != 3 || sum.Scanned != 3 {
		t.Errorf("%+v", sum)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	twin := r.parked("twin", nil)
	twin.Body = []byte("other")
	r.park(r.parked("one", nil), r.parked("twin", nil), twin, r.parked("", amqp.Table{"x-final-error": "no id"}))
	views, _ := r.browse(Filter{}, Scan{})
	f, more, err := r.Find(t.Context(), "one", 100)
	if err != nil || more != 0 || f.MessageID != "one" || f.Body.Format != "json" || f.Headers["x-final-status-code"] != int32(503) {
		t.Errorf("%+v %d %v", f, more, err)
	}
	if f, more, err := r.Find(t.Context(), "twin", 0); err != nil || more != 1 || f.Ref != views[1].Ref || f.Body != nil {
		t.Errorf("%+v %d %v", f, more, err)
	}
	if f, _, err := r.Find(t.Context(), views[3].Ref, 0); err != nil || f.Position != 4 || f.Error != "no id" {
		t.Errorf("%+v %v", f, err)
	}
	for _, id := range []string{"nobody", "", "0123456789abcdef"} {
		if _, _, err := r.Find(t.Context(), id, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestVisitEndsTheLook(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(20)...)
	enough := errors.New("enough")
	sum, err := r.Browse(t.Context(), Filter{}, Scan{}, func(m *Message) error {
		if m.Position == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || sum.Scanned != 3 {
		t.Errorf("%+v %v", sum, err)
	}
	if got := ids(r.drain(r.name)); len(got) != 20 || !slices.IsSorted(got) {
		t.Errorf("left: %v", got)
	}
}

func TestEmptyAndMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if views, sum := r.browse(Filter{}, Scan{}); len(views) != 0 || sum.Total != 0 || sum.Queue != r.name {
		t.Errorf("%+v", sum)
	}
	if p, err := r.Redrive(t.Context(), Redrive{Canary: 2}, nil); err != nil || p != (Progress{}) {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := brokertest.Channel(t, r.url).QueueDelete(r.name, false, false, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.Browse(t.Context(), Filter{}, Scan{}, nil)
	_, rerr := r.Redrive(t.Context(), Redrive{}, nil)
	_, derr := r.Depth(t.Context())
	_, ierr := r.Import(t.Context(), strings.NewReader(""), 0, nil)
	for _, err := range []error{err, rerr, derr, ierr} {
		if !errors.Is(err, ErrMissing) {
			t.Errorf("%v", err)
		}
	}
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.url = "amqp://127.0.0.1:1/"
	q := r.another()
	_, err := q.Browse(t.Context(), Filter{}, Scan{}, nil)
	_, rerr := q.Redrive(t.Context(), Redrive{}, nil)
	for _, err := range []error{err, rerr} {
		if err == nil || errors.Is(err, broker.ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
}

func TestNoDeadLetterQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	plan := *r.plan
	plan.Park.Queue = ""
	if _, err := New(Options{Plan: &plan}); !errors.Is(err, ErrNoQueue) {
		t.Errorf("%v", err)
	}
}
