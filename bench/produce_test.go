//go:build nightly

package main

import (
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestProduceLedgerFindsWhatIsWrong: a figure of messages that were not sent, or sent twice, is none.
func TestProduceLedgerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newTestBench(t)
	must.Do(t, b.declareSent())
	must.Do(t, b.ch.QueueUnbind(sentQueue, sentQueue, sentQueue, nil))
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
