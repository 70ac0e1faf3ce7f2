package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestChooseSubscription: a name chooses a queue; an unknown one is refused with the nearest; an action needs one queue.
func TestChooseSubscription(t *testing.T) {
	t.Parallel()
	environ := append([]string{"SIDECAR_SUBSCRIPTIONS=orders,refunds"}, nowhere...)
	for _, c := range []struct{ subscription, want, err string }{
		{"", "orders refunds", "this is for one dead-letter queue: choose the subscription, one of orders, refunds (--subscription, over HTTP ?subscription=)"},
		{"refunds", "refunds", ""},
		{"refund", "", `no subscription "refund"; did you mean refunds?`},
		{"zzz", "", `no subscription "zzz"; there are orders, refunds`},
	} {
		call := newCall(invocation{environ: environ}, "sidecar dlq", subcommand{name: "redrive"})
		call.subscription = c.subscription
		chosen, err := call.open()
		if got := strings.Join(chosen.Subscriptions(), " "); got != c.want {
			t.Errorf("%s: %s", c.subscription, got)
		}
		if err == nil {
			_, err = call.openOne()
		}
		if (err == nil) != (c.err == "") || err != nil && (!errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %v", c.subscription, err)
		}
	}
	unnamed := newCall(invocation{environ: nowhere, args: []string{"--subscription", "orders"}}, "sidecar dlq", subcommand{name: "list"})
	must.Do(t, unnamed.parseDLQ(0))
	if _, err := unnamed.open(); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "subscriptions have no names") {
		t.Error(err)
	}
	empty := newCall(invocation{args: []string{"--subscription", ""}}, "sidecar dlq", subcommand{name: "list"})
	if err := empty.parseDLQ(0); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "must not be empty") {
		t.Error(err)
	}
}

// TestSubscriptionColumn: lines name the subscription where there are names, and only there.
func TestSubscriptionColumn(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		var out bytes.Buffer
		call := newCall(invocation{stdout: &out}, "sidecar dlq", subcommand{name: "list"})
		call.named = named
		table := call.table([]column{{title: "REF"}})
		must.Do(t, call.line(table, nil, "orders", []string{"1"}))
		must.Do(t, call.endTable(table, nil, "1 of 1"))
		must.Do(t, call.out.Flush())
		want := []string{"REF", "1", "1", "of", "1"}
		if named {
			want = []string{"SUBSCRIPTION", "REF", "orders", "1", "1", "of", "1"}
		}
		if got := strings.Fields(out.String()); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
}
