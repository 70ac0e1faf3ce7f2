package test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// largeApp reads requests and keeps nothing of them: they are larger than the memory of this machine together.
type largeApp struct {
	*httptest.Server

	posts atomic.Int64
	bytes atomic.Int64
}

// newLargeApp answers each request of a message by what answer returns for it; nth counts those with the same id.
func newLargeApp(t *testing.T, answer func(w http.ResponseWriter, nth int)) *largeApp {
	a := &largeApp{}
	var mu sync.Mutex
	seen := map[string]int{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		a.posts.Add(1)
		a.bytes.Add(n)
		mu.Lock()
		id := r.Header.Get("Amqp-Message-Id")
		seen[id]++
		nth := seen[id]
		mu.Unlock()
		answer(w, nth)
	}))
	t.Cleanup(a.Close)
	return a
}

// statuses answers the first requests of a message with these, and all others with the last one.
func statuses(codes ...int) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, nth int) {
		code := codes[min(nth, len(codes))-1]
		if code == http.StatusTooEarly {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(code)
	}
}

// largeKind is one thing that can happen to a large message.
type largeKind struct {
	name    string
	env     []string
	answer  func(http.ResponseWriter, int)
	outcome string // of the settlements that end the messages
	parked  bool   // they are in the dead-letter queue then
}

var largeKinds = []largeKind{
	{name: "park", env: []string{"PARK_ON_STATUS", "422"}, answer: statuses(422), outcome: "park", parked: true},
	{name: "ack", answer: statuses(200), outcome: "ack"},
	{name: "retry", answer: statuses(503, 200), outcome: "ack", env: []string{"MAX_RETRIES", "3"}},
	{name: "published retry", answer: statuses(409, 200), outcome: "ack", env: []string{"TOPOLOGY_MODE", "verify"}},
	{name: "425", answer: statuses(425, 200), outcome: "ack"},
	{name: "requeue", outcome: "ack", answer: func(w http.ResponseWriter, nth int) {
		if nth == 1 {
			w.Header().Set("Amqp-Disposition", "requeue")
		}
		w.WriteHeader(200)
	}},
	{name: "order", env: []string{"ORDER_BY", "header:k", "ORDER_SCOPE", "replica"}, answer: statuses(409, 200), outcome: "ack"},
	{name: "batch", env: []string{"BATCH_SIZE", "10", "BATCH_BYTES", "2MiB"}, answer: statuses(200), outcome: "ack"},
}

// largeLoad is how many messages of that size in MiB.
type largeLoad struct{ count, mib int }

// loads are those that kill a sidecar which does not count what it holds; with LARGE_MESSAGES=all (make soak) all that
// the memory limit is promised for.
func loads() []largeLoad {
	if os.Getenv("LARGE_MESSAGES") == "all" {
		return []largeLoad{{200, 1}, {200, 8}, {200, 15}, {12, 20}, {12, 30}, {12, 60}}
	}
	return []largeLoad{{20, 15}}
}

// sendLarge publishes n messages of that size. Each has its own key of 7.
func (sc *scene) sendLarge(n, mib int) {
	body := bytes.Repeat([]byte("0123456789abcdef"), mib<<16)
	for i, id := range numbered(fmt.Sprintf("large-%d", mib), n) {
		m := message(id)
		m.Body, m.Headers = body, amqp.Table{"k": fmt.Sprint(i % 7)}
		sc.sendMessage(m)
	}
}

// TestLargeMessagesOfEveryKind: whatever becomes of large messages, the sidecar stays within the limit of its container
// with the chart's defaults, and none is lost.
func TestLargeMessagesOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, kind := range largeKinds {
		for _, load := range loads() {
			t.Run(fmt.Sprintf("%s/%dx%d", strings.ReplaceAll(kind.name, " ", "_"), load.count, load.mib), func(t *testing.T) {
				t.Parallel()
				sc := newScene(t).with(kind.env...).seed()
				app := newLargeApp(t, kind.answer)
				sc.with("APP_URL", app.URL, "LOG_LEVEL", "info")
				heavy.Lock()
				defer heavy.Unlock()
				sc.sendLarge(load.count, load.mib)
				s := sc.confined(plainLimit)
				outcome, parked := kind.outcome, 0
				if load.mib > 16 { // larger than SIDECAR_MAX_BODY
					outcome = "park"
				}
				if outcome == "park" {
					parked = load.count
				}
				settled := func() int { return int(s.metric("sidecar_messages_settled_total", `outcome="`+outcome+`"`)) }
				for done := 0; done < load.count; done = settled() {
					before := done
					eventually(t, fmt.Sprintf("more than %d of %d settled as %s", before, load.count, outcome), func() bool {
						if s.ended() {
							t.Fatalf("the sidecar ended with %d messages settled: %v", before, s.cmd.ProcessState)
						}
						return settled() > before || settled() == load.count
					})
				}
				eventually(t, "nothing is held", func() bool { return s.metric("sidecar_memory_bytes") == 0 })
				s.within()
				sc.settledAll(s.sidecar, parked)
			})
		}
	}
}

// TestALargeBodyOfAnotherQueue: it does not keep the messages of the second queue from their share of the memory, in a
// file or, without one, in memory beyond its own share.
func TestALargeBodyOfAnotherQueue(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"file": "/tmp", "memory": "/proc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := make(chan struct{})
			app := newLargeApp(t, func(w http.ResponseWriter, _ int) { <-gate })
			sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds", "SUB_ORDERS_APP_URL", app.URL, "MAX_BODY", "64MiB", "SPOOL_DIR", dir)
			heavy.Lock()
			defer heavy.Unlock()
			s := sc.confined(plainLimit)
			queue := func(of string) string { return sc.queue() + "." + of }
			large := message("large")
			large.Body = bytes.Repeat([]byte("0123456789abcdef"), 60<<16)
			sc.publish("", queue("orders"), large)
			eventually(t, "the app has it", func() bool { return app.bytes.Load() == 60<<20 })
			if n := s.metric("sidecar_memory_bytes", `of="deliveries"`); (n >= 60<<20) != (name == "memory") {
				t.Errorf("%v bytes of deliveries are in memory", n)
			}
			ids := numbered("small", 100)
			sc.publish("", queue("refunds"), messages(ids...)...)
			s.awaitAcked(ids...)
			close(gate)
			s.awaitAcked("large")
			s.alive()
		})
	}
}
