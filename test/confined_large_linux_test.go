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
	"time"

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
	outcome string                                              // of the settlements that end the messages
	each    bool                                                // also a few messages show it
	put     func(sc *scene, load largeLoad)                     // before the start; nil: into the service's queue
	then    func(sc *scene, s *sidecar, load largeLoad) (n int) // how many messages come to the service's queue by it
}

var largeKinds = []largeKind{
	{name: "park", env: []string{"PARK_ON_STATUS", "422"}, answer: statuses(422), outcome: "park"},
	{name: "ack", answer: statuses(200), outcome: "ack"},
	{name: "retry", answer: statuses(409, 200), outcome: "ack", env: []string{"MAX_RETRIES", "3"}},
	{name: "published_retry", answer: statuses(409, 200), outcome: "ack", env: []string{"TOPOLOGY_MODE", "verify"}, each: true},
	{name: "425", answer: statuses(425, 200), outcome: "ack"},
	{name: "requeue", outcome: "ack", answer: func(w http.ResponseWriter, nth int) {
		if nth == 1 {
			w.Header().Set("Amqp-Disposition", "requeue")
		}
		w.WriteHeader(http.StatusOK)
	}},
	{name: "order", env: []string{"ORDER_BY", "header:k", "ORDER_SCOPE", "replica"}, answer: statuses(409, 200), outcome: "ack", each: true},
	{name: "batch", env: []string{"BATCH_SIZE", "10", "BATCH_BYTES", "2MiB"}, answer: statuses(200), outcome: "ack"},
	{name: "publish", env: []string{"PUBLISH_ADDR", "127.0.0.1:0"}, answer: statuses(200), outcome: "ack", put: func(*scene, largeLoad) {}, then: publishLarge},
	{name: "redrive", answer: statuses(200), outcome: "ack", then: redriveLarge, put: func(sc *scene, load largeLoad) {
		sc.putLarge("", sc.dlq(), load)
	}},
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

// publishLarge publishes by HTTP, four at once, until each message is published, or refused as too large.
func publishLarge(sc *scene, s *sidecar, load largeLoad) (n int) {
	body := strings.Repeat("0123456789abcdef", load.mib<<16)
	var clients sync.WaitGroup
	var published atomic.Int64
	for i := range 4 {
		clients.Go(func() {
			for range (load.count + i) / 4 {
				eventually(sc.t, "an answer other than 503", func() bool {
					status, _, _ := s.send("/publish/default/k", body, nil)
					if status == http.StatusNoContent {
						published.Add(1)
					}
					return status == http.StatusNoContent || status == http.StatusRequestEntityTooLarge && load.mib > 16
				})
			}
		})
	}
	clients.Wait()
	return int(published.Load())
}

func redriveLarge(sc *scene, s *sidecar, load largeLoad) int {
	c := s.api("")
	op := c.begin("/dlq/redrive", `{"all":true}`)
	for done := -1; op.State == "running"; done = op.Progress.Done {
		eventually(sc.t, "progress", func() bool {
			c.want(http.StatusOK, http.MethodGet, "/dlq/operations/"+op.ID, "", &op)
			return op.State != "running" || op.Progress.Done > done
		})
	}
	if op.Progress.Done != load.count {
		sc.t.Errorf("redriven: %+v", op)
	}
	return load.count
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
				heavy.Lock()
				defer heavy.Unlock()
				if kind.put == nil {
					sc.putLarge(sc.exchange(), "k", load)
				} else {
					kind.put(sc, load)
				}
				s, n := sc.confined(plainLimit), load.count
				if kind.then != nil {
					n = kind.then(sc, s.sidecar, load)
				}
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

// TestPublishersBesideLargeMessages: clients that publish all the time take what memory the messages of the app leave,
// and their buffers are soon garbage. Both together stay within the limit.
func TestPublishersBesideLargeMessages(t *testing.T) {
	t.Parallel()
	load := largeLoad{3, 60}
	if size, _ := largest(t); size < load.mib<<20 {
		load = largeLoad{12, 15}
	}
	sc := publishing(t).with("CONCURRENCY", "20", "MAX_BODY", "60MiB", "MAX_RETRIES", "30", "RETRY_DELAY", "1s", "LOG_LEVEL", "info")
	var posts atomic.Int64
	sc.with("APP_URL", newLargeApp(t, func(w http.ResponseWriter, _ int) {
		if posts.Add(1) <= 20 {
			time.Sleep(time.Second) // is memory held
			w.WriteHeader(http.StatusInternalServerError)
		}
	}).URL)
	heavy.Lock()
	defer heavy.Unlock()
	sc.putLarge(sc.exchange(), "k", load)
	s := sc.confined(plainLimit)
	var published atomic.Int64
	peak := s.peakAnonymous(func() {
		body := strings.Repeat("0123456789abcdef", 8<<16)
		var clients sync.WaitGroup
		for range 12 {
			clients.Go(func() {
				for range 6 {
					if status, _, _ := s.send("/publish/default/k", body, nil); status == http.StatusNoContent {
						published.Add(1)
					}
					time.Sleep(50 * time.Millisecond) // is the load
				}
			})
		}
		clients.Wait()
		s.awaitSettled("ack", load.count+int(published.Load()))
	})
	t.Logf("%d MiB of anonymous memory at the peak, %d published", peak, published.Load())
	if bar := s.limit * 86 / 100; peak > bar || published.Load() == 0 {
		t.Errorf("%d MiB of anonymous memory at the peak, the limit is %d; %d published", peak, bar, published.Load())
	}
	s.alive()
	sc.settledAll(s.sidecar, 0)
}

// TestMixedLargeMessages: bodies of many sizes at once, most of which do not fit into memory together.
func TestMixedLargeMessages(t *testing.T) {
	t.Parallel()
	if os.Getenv("LARGE_MESSAGES") != "all" {
		return
	}
	sc := newScene(t).with("CONCURRENCY", "20", "LOG_LEVEL", "info").seed()
	sc.with("APP_URL", newLargeApp(t, statuses(200)).URL)
	heavy.Lock()
	defer heavy.Unlock()
	for _, load := range []largeLoad{{1, 60}, {3, 30}, {20, 8}, {2, 60}, {3, 30}, {20, 8}} {
		sc.putLarge(sc.exchange(), "k", load)
	}
	s := sc.confined(plainLimit)
	s.awaitSettled("park", 9)
	s.awaitSettled("ack", 40)
	s.within()
	sc.settledAll(s.sidecar, 9)
}
