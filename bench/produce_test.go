//go:build nightly

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestProduceLedger: what is measured is what happened, every message of it once.
func TestProduceLedger(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, produce)
	b.produced.Publish = must.Get(b.published(asked{Requests: 100, Body: 1024, Connections: 5}))(t)
	b.produced.Batch = must.Get(b.published(asked{Requests: 4, Batch: 25, Body: 1024, Connections: 2}))(t)
	for _, r := range append(b.produced.Publish, b.produced.Batch...) {
		if r.Rate <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Peak <= 0 || r.Load.messages() != 100 {
			t.Errorf("%+v", r)
		}
	}
	produceRows(t, b)
	checkProduced(t, b)
}

// produceRows runs everything that has to do with the outbox once.
func produceRows(t *testing.T, b *bench) {
	t.Helper()
	for _, c := range b.with(candidate{name: "baseline", path: filepath.Join(b.tools, "relay")}) {
		for relays := 1; relays <= 2; relays++ {
			r, err := b.relayed(c, pending{Rows: 100, Body: 1024, Relays: relays}, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if r.Rate <= 0 || r.Peak <= 0 {
				t.Errorf("%+v", r)
			}
			b.produced.Outbox = append(b.produced.Outbox, r)
		}
	}
	l := must.Get(b.latencyRun(10))(t)
	if l.Direct.P50 <= 0 || l.Outbox.P50 <= 0 {
		t.Errorf("%+v", l)
	}
	b.produced.Latency = append(b.produced.Latency, *l)
	for _, open := range []bool{false, true} {
		r := must.Get(b.longRun(pending{Rows: 1000, Body: 16, Relays: 1}, open))(t)
		if n := len(r.Series); n == 0 || r.Series[n-1].Sent != 1000 || r.Series[n-1].RSS <= 0 {
			t.Errorf("series: %+v", r.Series)
		}
		b.produced.Long = append(b.produced.Long, r)
	}
}

// checkProduced writes the result and reads it as others would.
func checkProduced(t *testing.T, b *bench) {
	t.Helper()
	shows(t, b, "| baseline | 2 | 100 |", "| sidecar | 1 | 100 |", "| other |", "| 1000 | yes |", "| added |", "confirmed requests")
	encoded := must.Get(os.ReadFile(filepath.Join(b.o.out, "produce.json")))(t)
	var back produced
	if err := json.Unmarshal(encoded, &back); err != nil || len(back.Publish) != 3 || len(back.Outbox) != 6 || len(back.Long) != 2 {
		t.Errorf("produce.json: %v\n%s", err, encoded)
	}
	if _, err := os.Stat(filepath.Join(b.o.out, "result.json")); err == nil {
		t.Error("there are figures of the half that was not measured")
	}
}

// TestProduceLedgerFindsWhatIsWrong: a figure of messages that were not sent, or sent twice, is none.
func TestProduceLedgerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, produce)
	must.Do(t, b.declareSent())
	unbound := func(key string) func() error {
		return func() error { return b.ch.QueueUnbind(sentQueue, key, sentQueue, nil) }
	}
	must.Do(t, unbound(sentQueue)())
	for _, l := range []asked{{Requests: 5, Body: 10, Connections: 1}, {Requests: 2, Batch: 5, Body: 10, Connections: 1}} {
		for _, c := range b.with(candidate{name: "baseline", path: filepath.Join(b.tools, "publisher")}) {
			if _, err := b.publishing(c, l); err == nil || !strings.Contains(err.Error(), "were answered well") {
				t.Errorf("%s, without a queue: %v", c.name, err)
			}
		}
	}
	must.Do(t, b.purgeSent())
	must.Do(t, b.ch.Publish(sentQueue, sentQueue, true, false, amqp.Publishing{}))
	if err := b.sentOnce("client", 2); err == nil || !strings.Contains(err.Error(), "1 of 2 messages") {
		t.Errorf("one message is missing: %v", err)
	}
	if err := b.sentOnce("client", 1); err != nil {
		t.Errorf("all are there: %v", err)
	}
}
