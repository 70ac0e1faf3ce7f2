package test

import (
	"testing"
	"time"
)

// TestTooEarlyIsNotCounted: as often as the app likes.
func TestTooEarlyIsNotCounted(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "2", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "260ms", "QUEUE_TYPE", queueType)
			early := status(425)
			sc.app.on("m", early, early, early, early, early, early, early, early, status(500), early, status(200))
			s := sc.run()
			sc.send("m")
			list := sc.app.await("m", 11)
			for i, d := range list {
				want := 0
				if i > 8 {
					want = 1
				}
				if d.number("Amqp-Retry-Count") != want {
					t.Errorf("receipt %d: Amqp-Retry-Count %d, want %d", i+1, d.number("Amqp-Retry-Count"), want)
				}
				if i == 0 {
					continue
				}
				// However small the configured delay, a 425 must not spin.
				if gap := d.at.Sub(list[i-1].at); gap < 250*time.Millisecond {
					t.Errorf("receipt %d came %v after the one before", i+1, gap)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}

func TestTooEarlyAtTheLimitParks(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "250ms").seed()
	sc.app.on("m", status(425), status(500), status(425), status(200))
	sc.send("m")
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	if asInt(d.Headers["x-final-status-code"]) != 425 || asInt(d.Headers["x-final-retry-count"]) != 1 {
		t.Errorf("parked with %v", d.Headers)
	}
	if n := len(sc.app.seen("m")); n != 3 {
		t.Errorf("%d receipts, want 3", n)
	}
	sc.settledAll(s, 0)
}

// TestTooEarlyWithoutRetries: a 425 is not a retry, so it requeues where the first failure parks.
func TestTooEarlyWithoutRetries(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"max retries": {"MAX_RETRIES", "0"},
		"delays":      {"TOPOLOGY", "delay-ladder", "RETRY_DELAY", "", "RETRY_DELAYS", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			sc.with("EXCHANGE", sc.exchange(), "BINDINGS", sc.exchange()+":order.#", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "250ms").with(env...)
			sc.app.on("m", status(425), status(425), status(200))
			s := sc.run()
			sc.send("m")
			sc.app.await("m", 3)
			s.awaitAcked("m")
		})
	}
}

// TestDelayedMessagesDoNotBlock: more messages that are always too early than the prefetch holds, ahead of good ones.
func TestDelayedMessagesDoNotBlock(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("CONCURRENCY", "2", "PREFETCH", "6", "REQUEUE_DELAY_MIN", "1s", "REQUEUE_DELAY_MAX", "2s", "QUEUE_TYPE", queueType)
			early, good := numbered("early", 40), numbered("good", 60)
			for _, id := range early {
				sc.app.on(id, status(425))
			}
			s := sc.run()
			sc.send(early...)
			sc.send(good...)
			sc.app.awaitAll(good...)
			for _, id := range early {
				sc.app.on(id, status(200))
			}
			for _, id := range early {
				s.awaitOutcome(id, "ack")
				for _, d := range sc.app.seen(id) {
					if d.number("Amqp-Retry-Count") != 0 {
						t.Errorf("%s was counted: Amqp-Retry-Count %d", id, d.number("Amqp-Retry-Count"))
					}
				}
			}
			sc.settledAll(s, 0)
			for _, id := range good {
				if n := len(sc.app.seen(id)); n != 1 {
					t.Errorf("%s was received %d times", id, n)
				}
			}
		})
	}
}
