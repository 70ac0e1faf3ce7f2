package test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// preset is one topology, shrunk to quick delays, and where its parked messages end.
type preset struct {
	name          string
	env           []string
	exchange, key string
	queue, dlq    string
	retries       int
	gaps          []time.Duration // lower bounds before retry 1, 2, …; the last repeats
	queues        []string        // in which retries wait
}

// presets are one of each topology, with names that begin with p.
func presets(p string) []preset {
	ms := func(list ...int) []time.Duration {
		var out []time.Duration
		for _, n := range list {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	return []preset{
		{
			"fanout", []string{"MAX_RETRIES", "2", "RETRY_DELAY", "300ms"}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 2, ms(300), []string{p + ".retry-queue." + p + "-svc"},
		}, {
			"fanout", []string{"MAX_RETRIES", "3", "RETRY_DELAYS", "300ms,600ms", "RETRY_DELAY", ""}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 3, ms(300, 600, 600),
			[]string{p + ".retry-queue." + p + "-svc.300ms", p + ".retry-queue." + p + "-svc.600ms"},
		}, {
			"topic-tiers", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", ""}, p + ".events", "svc.created",
			p + ".svc", p + ".events.dlq", 3, ms(300, 500, 700),
			[]string{p + ".svc.retry.300ms", p + ".svc.retry.500ms", p + ".svc.retry.700ms"},
		}, {
			"per-queue", []string{"RETRY_DELAY", "300ms", "EXCHANGE", p + ".ex", "BINDINGS", p + ".ex:order.#"}, p + ".ex", "order.created",
			"q." + p + "-svc", "q." + p + "-svc.dlq", 3, ms(300), []string{"q." + p + "-svc.retry"},
		}, {
			"delay-ladder", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "BINDINGS", p + ".events:order.#"}, p + ".events", "order.created",
			p + ".svc", p + ".svc.dlq", 3, ms(300, 500, 700), []string{p + ".svc.delay_300ms", p + ".svc.delay_500ms", p + ".svc.delay_700ms"},
		}, {
			"dead-letter", []string{"RETRY_DELAY", "300ms", "QUEUE", p + ".orders", "BINDINGS", p + ":order.*"}, p, "order.created",
			p + ".orders", p + ".orders.dlq", 4, ms(300), []string{p + ".orders.retry"},
		}, {
			"native", []string{"MAX_RETRIES", "2", "RETRY_DELAY", "300ms"}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 2, ms(300), nil,
		},
	}
}

// TestEveryPreset of which the environment says something of its own: a good message once, a late one as often as it takes,
// a bad one parked with its reason after exactly its attempts, no wait shorter than its tier. What all presets and queue
// types have in common is in package topologytest.
func TestEveryPreset(t *testing.T) {
	t.Parallel()
	for i, queueType := range map[int]string{1: "quorum", 2: "classic", 5: "classic"} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			exercise(t, sc, presets(sc.prefix)[i], queueType)
		})
	}
}

func exercise(t *testing.T, sc *scene, p preset, queueType string) {
	t.Helper()
	sc.with("TOPOLOGY", p.name, "QUEUE_TYPE", queueType).with(p.env...)
	sc.app.on("bad", status(500))
	sc.app.on("late", status(500), status(200))
	sc.app.on("early", status(425), status(200))
	sc.with("REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms")
	s := sc.run()
	sc.publish(p.exchange, p.key, messages("bad", "late", "early", "good")...)
	d := sc.take(p.dlq, 1)[0]
	if d.MessageId != "bad" || asInt(d.Headers["x-final-status-code"]) != 500 || asInt(d.Headers["x-final-retry-count"]) != p.retries ||
		d.Headers["x-final-reason"] != "max_retries" || d.Headers["x-original-queue"] != p.queue || d.Headers["x-original-exchange"] != p.exchange ||
		d.Headers["x-original-routing-key"] != p.key || d.DeliveryMode != 2 {
		t.Errorf("parked %q, mode %d, with %v", d.MessageId, d.DeliveryMode, d.Headers)
	}
	list := sc.app.seen("bad")
	if len(list) != p.retries+1 {
		t.Errorf("%d attempts, want %d", len(list), p.retries+1)
	}
	for i := 1; i < len(list); i++ {
		least := p.gaps[min(i, len(p.gaps))-1]
		if gap := list[i].at.Sub(list[i-1].at); gap < least {
			t.Errorf("retry %d after %v, its queue holds for %v", i, gap, least)
		}
		h := list[i].header
		if list[i].number("Amqp-Retry-Count") != i || h.Get("Amqp-Exchange") != p.exchange || h.Get("Amqp-Routing-Key") != p.key {
			t.Errorf("retry %d: count %s, from %q key %q", i, h.Get("Amqp-Retry-Count"), h.Get("Amqp-Exchange"), h.Get("Amqp-Routing-Key"))
		}
	}
	sc.app.await("late", 2)
	if early := sc.app.await("early", 2); early[1].number("Amqp-Retry-Count") != 0 {
		t.Error("a 425 was counted")
	}
	// Moved back by hand: one try, then parked again.
	again := message("moved")
	again.Headers = d.Headers
	sc.app.on("moved", status(500))
	sc.publish("", p.queue, again)
	d = sc.take(p.dlq, 1)[0]
	if seen := sc.app.seen("moved"); len(seen) != 1 || seen[0].header.Get("Amqp-Last-Attempt") != "true" || seen[0].number("Amqp-Retry-Count") != p.retries ||
		seen[0].header.Get("Amqp-Exchange") != p.exchange || seen[0].header.Get("Amqp-Routing-Key") != p.key ||
		d.MessageId != "moved" || asInt(d.Headers["x-final-retry-count"]) != p.retries || d.Headers["x-original-exchange"] != p.exchange {
		t.Errorf("%q parked after %d attempts, want one, with %v", d.MessageId, len(seen), d.Headers)
	}
	s.stop()
	for _, q := range append(p.queues, p.queue, p.dlq) {
		if n := sc.ready(q); n != 0 {
			t.Errorf("%d messages in %s, want 0", n, q)
		}
	}
	if n := len(sc.app.seen("good")); n != 1 {
		t.Errorf("the good message was received %d times", n)
	}
}

// TestDeadLetterDisabled: no DLQ to park in; at the limit the message is discarded, loudly and counted.
func TestDeadLetterDisabled(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	p := sc.prefix
	sc.with("TOPOLOGY", "dead-letter", "QUEUE", p+".q", "BINDINGS", p+":order.*", "DEAD_LETTER", "disabled", "MAX_RETRIES", "1")
	sc.app.on("bad", status(500))
	s := sc.run()
	sc.publish(p, "order.created", message("bad"), message("good"))
	s.awaitOutcome("bad", "discard")
	if n := s.metric("sidecar_messages_settled_total", `outcome="discard"`); n != 1 {
		t.Errorf("%v discarded in the metrics", n)
	}
	if len(s.log.find(func(e entry) bool {
		return e.text("message_id") == "bad" && e.text("outcome") == "discard" && !strings.EqualFold(e.text("level"), "debug") && !strings.EqualFold(e.text("level"), "info")
	})) == 0 {
		t.Error("discarding a message is not loud")
	}
	if sc.ready(p+".q.dlq") >= 0 {
		t.Error("a DLQ was declared")
	}
	sc.app.await("good", 1)
	s.stop()
}
