package test

import (
	"bufio"
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
	each    bool   // also a few messages show it
}

var largeKinds = []largeKind{
	{name: "park", env: []string{"PARK_ON_STATUS", "422"}, answer: statuses(422), outcome: "park"},
	{name: "ack", answer: statuses(200), outcome: "ack"},
	{name: "retry", answer: statuses(409, 200), outcome: "ack", env: []string{"MAX_RETRIES", "3"}},
	{name: "published_retry", answer: statuses(409, 200), outcome: "ack", env: []string{"TOPOLOGY_MODE", "verify"}, each: true},
	{name: "requeue", outcome: "ack", answer: func(w http.ResponseWriter, nth int) {
		if nth == 1 {
			w.Header().Set("Amqp-Disposition", "requeue")
		}
		w.WriteHeader(http.StatusOK)
	}},
	{name: "order", env: []string{"ORDER_BY", "header:k", "ORDER_SCOPE", "replica"}, answer: statuses(409, 200), outcome: "ack", each: true},
	{name: "batch", env: []string{"BATCH_SIZE", "10"}, answer: statuses(200), outcome: "ack"},
}

// largeLoad is how many messages of that size in MiB.
type largeLoad struct{ count, mib int }

// loads are one that kills a sidecar which does not count what it holds; with LARGE_MESSAGES=all (make soak) all that
// the memory limit is promised for.
func (k *largeKind) loads() []largeLoad {
	switch {
	case os.Getenv("LARGE_MESSAGES") == "all":
		return []largeLoad{{200, 1}, {200, 8}, {200, 15}, {12, 20}, {12, 30}, {12, 60}}
	case k.each:
		return []largeLoad{{12, 15}}
	}
	return nil
}

// putLarge publishes messages of that size. Each has one of seven keys.
func (sc *scene) putLarge(exchange, key string, load largeLoad) {
	body := bytes.Repeat([]byte("0123456789abcdef"), load.mib<<16)
	for i, id := range numbered(fmt.Sprintf("large-%d", load.mib), load.count) {
		m := message(id)
		m.Body, m.Headers = body, amqp.Table{"k": fmt.Sprint(i % 7), "x-original-queue": sc.queue()}
		sc.publish(exchange, key, m)
	}
}

// awaitSettled waits for n settlements with that outcome, while there is a settlement within the patience of a test.
func (c *confined) awaitSettled(outcome string, n int) {
	c.t.Helper()
	settled := func(labels ...string) int { return int(c.metric("sidecar_messages_settled_total", labels...)) }
	for all := -1; settled(`outcome="`+outcome+`"`) < n; {
		before := all
		eventually(c.t, fmt.Sprintf("more than %d settlements, for %d: %s", before, n, outcome), func() bool {
			if c.ended() {
				c.t.Fatalf("the sidecar ended after %d settlements: %v", before, c.cmd.ProcessState)
			}
			all = settled()
			return all > before
		})
	}
	eventually(c.t, "nothing is held", func() bool { return c.metric("sidecar_memory_bytes") == 0 })
}

// TestLargeMessagesOfEveryKind: however large messages are settled, the sidecar stays within the limit of its container
// with the chart's defaults, and none is lost.
func TestLargeMessagesOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, kind := range largeKinds {
		for _, load := range kind.loads() {
			t.Run(fmt.Sprintf("%s/%dx%d", kind.name, load.count, load.mib), func(t *testing.T) {
				t.Parallel()
				sc := newScene(t).with(kind.env...).seed()
				sc.with("APP_URL", newLargeApp(t, kind.answer).URL, "LOG_LEVEL", "info")
				alone(t)
				sc.putLarge(sc.exchange(), "k", load)
				s, n := sc.confined(plainLimit), load.count
				outcome, parked := kind.outcome, 0
				if load.mib > 16 { // larger than SIDECAR_MAX_BODY
					outcome = "park"
				}
				if outcome == "park" {
					parked = n
				}
				s.awaitSettled(outcome, n)
				s.within()
				sc.settledAll(s.sidecar, parked)
			})
		}
	}
}

// nestedLine is a line of a batch whose headers nest n times.
func nestedLine(n int) string {
	return `{"routing_key":"k","headers":{"h":[` + strings.Repeat(`{"":{}},`, n/8) + `0]}}` + "\n"
}

func (c *confined) batch(lines string) (int, string) {
	c.t.Helper()
	status, _, body := c.send("/publish:batch", lines, map[string]string{"Content-Type": "application/jsonl"})
	return status, body
}

// TestCostlyLines: lines of a batch with headers that no frame can carry, large texts of several batches at once, and
// clients that send all of a large body before they read.
func TestCostlyLines(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	alone(t)
	s := sc.confined(publishLimit)
	innocent := `{"routing_key":"k","message_id":"innocent","body":"x"}` + "\n"
	for _, size := range []int{3 << 20, 31 << 20} {
		status, body := s.batch(nestedLine(size) + innocent)
		lines := strings.Split(strings.TrimSpace(body), "\n")
		if status != http.StatusOK || len(lines) != 2 || !strings.Contains(lines[0], `"status":4`) || !strings.Contains(lines[1], `"status":204`) {
			t.Errorf("%d bytes: %d %.300s", size, status, body)
		}
	}
	text := `{"routing_key":"k","body":"` + strings.Repeat("x", 15<<20) + `"}` + "\n"
	var batches sync.WaitGroup
	for range 6 {
		batches.Go(func() {
			if status, body := s.batch(text); status != http.StatusServiceUnavailable && !strings.Contains(body, `"status":204`) && !strings.Contains(body, `"code":"busy"`) && !strings.Contains(body, `"code":"slow"`) {
				t.Errorf("a large text: %d %.300s", status, body)
			}
		})
	}
	batches.Wait()
	s.readsWhileBusy(t)
	s.published("/publish/default/k", "behind", nil)
	s.alive()
}

// readsWhileBusy: a client that sends all of a large body before it reads sees an answer and no reset, whether there was
// memory for it or not.
func (c *confined) readsWhileBusy(t *testing.T) {
	t.Helper()
	const size = 15 << 20
	body := bytes.Repeat([]byte("x"), size)
	var clients sync.WaitGroup
	for _, client := range hold(t, c.endpoint, post("/publish/default/k", size, ""), 8) {
		clients.Go(func() {
			if _, err := client.Write(body); err != nil {
				t.Errorf("a client was cut off: %v", err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Errorf("a client had no answer: %v", err)
				return
			}
			_ = resp.Body.Close() // on a busy machine it may be that the client was too slow
		})
	}
	clients.Wait()
}

// TestUnfinishedRequests: announced bodies that do not come, and far more connections than a listener takes, each with a
// header that does not end. Others are answered meanwhile.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	alone(t)
	s := sc.confined(publishLimit)
	hold(t, s.endpoint, post("/publish/default/k", 16<<20, "")+"x", 4)
	hold(t, s.endpoint, post("/publish/default/k", 10, "")+"x", 256)
	s.published("/publish/default/k", "innocent", nil)
	for _, addr := range []string{s.admin, s.control, s.endpoint} {
		hold(t, addr, manyLines, 1200)
		for addr, path := range map[string]string{s.admin: "/livez", s.control: "/status"} {
			if status, body := s.get(addr, path); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		s.published("/publish/default/k", "innocent", nil)
	}
	hold(t, s.control, post("/pause", 10, "Content-Type: application/json\r\n")+"{", 64) // more than its slots
	if status, body := s.get(s.control, "/status"); status != http.StatusOK {
		t.Errorf("beside slow bodies: %d %s", status, body)
	}
	s.alive()
}
