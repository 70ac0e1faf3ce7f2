package publish

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestUnroutable: no queue, no exchange, and both good again when they are there.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	missing := ""
	r := start(t, "", func(o *Options) {
		missing = o.Exchanges["default"] + ".missing"
		o.Exchanges["missing"], o.Exchanges["others"] = missing, "amq.direct"
		o.Bindings = map[string]string{"amq.direct": "orders.*, payments.*"}
	})
	nowhere := brokertest.Name(t, "nowhere")
	r.want("no queue", r.post("/publish/direct/"+nowhere, "x"), http.StatusNotFound, unroutable, "does not exist")
	r.want("no binding", r.post("/publish/others/none", "x"), http.StatusNotFound, unroutable, "bound by orders.*, payments.*")
	for range 3 {
		r.want("no exchange", r.post("/publish/missing/k", "x"), http.StatusNotFound, unroutable, "no exchange '"+missing+"'")
	}
	must.Do(t, r.ch.ExchangeDeclare(missing, "fanout", false, true, false, false, nil))
	must.Do(t, r.ch.QueueBind(r.queue, "", missing, false, nil))
	r.wantPublished("an exchange that is there now", r.post("/publish/missing/k", "x"))
	r.wantPublished("the default exchange", r.post("/publish/direct/"+r.queue, "x"))
	if n := r.metric("sidecar_publish_requests_total", "exchange", "missing", "result", "unroutable"); n != 3 {
		t.Errorf("counted %v", n)
	}
	if !strings.Contains(r.log.String(), `"msg":"message not published"`) {
		t.Error("nothing was logged")
	}
}

// TestNacked: a queue that is full and says so.
func TestNacked(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	full := brokertest.Queue(t, r.url, brokertest.Name(t, "full"), amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	r.wantPublished("the first", r.post("/publish/direct/"+full, "x"))
	for range 3 {
		r.want("one too many", r.post("/publish/direct/"+full, "x"), http.StatusServiceUnavailable, nacked, "may be full")
	}
	// Of two queues the other one has it each time, which the answer does not deny.
	r.bind(full, "both")
	for range 2 {
		r.want("one of two", r.post("/publish/default/both", "one of two"), http.StatusServiceUnavailable, nacked, "other queues of the exchange may have it")
		r.next("one of two")
	}
	r.wantPublished("another queue", r.post("/publish/direct/"+r.queue, "x"))
}

// linked starts a server that is connected through a proxy.
func linked(t *testing.T, change func(*Options)) (*rig, *brokertest.Proxy) {
	t.Helper()
	proxy := brokertest.NewProxy(t, brokertest.URL(t))
	return start(t, proxy.URL(t, brokertest.URL(t)), change), proxy
}

func TestDisconnected(t *testing.T) {
	t.Parallel()
	r, proxy := linked(t, nil)
	r.wantPublished("before", r.post("/publish/default/k", "x"))
	proxy.Refuse()
	proxy.Cut()
	brokertest.Eventually(t, time.Minute, "disconnected", func() bool { return !r.server.o.Publisher.Connected() })
	r.want("away", r.post("/publish/default/k", "x"), http.StatusServiceUnavailable, disconnected, "Nothing was sent")
	r.want("a batch", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, disconnected, "")
	r.want("readiness", r.do(http.MethodGet, "/readyz", nil), http.StatusServiceUnavailable, disconnected, "")
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "connected again", r.server.o.Publisher.Connected)
	r.wantPublished("after", r.post("/publish/default/k", "x"))
	if got := r.do(http.MethodGet, "/readyz", nil); got.StatusCode != http.StatusOK {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

// TestUnknown: a message and the items of a batch that were sent and got no answer are a 504, and the sidecar sends
// none of them again.
func TestUnknown(t *testing.T) {
	t.Parallel()
	r, proxy := linked(t, func(o *Options) { o.Timeout = 2 * time.Second })
	// On a busy machine a confirm may take longer than the short timeout of this test.
	brokertest.Eventually(t, time.Minute, "a message published before", func() bool {
		return r.post("/publish/default/k", "before").StatusCode == http.StatusNoContent
	})
	proxy.Stall(brokertest.Down)
	batch := make(chan []result)
	go func() {
		batch <- r.batch(`{"routing_key":"k","body":"item"}`, `{"exchange":"other","routing_key":"k"}`, `{"routing_key":"k","body":"item"}`)
	}()
	got := r.post("/publish/default/k", "one", "Idempotency-Key", "k-1")
	r.want("no answer", got, http.StatusGatewayTimeout, unknown, "may have been published. Send it again with the same Idempotency-Key")
	items := <-batch
	r.wantCodes("a batch", items, unknown, forbidden, unknown)
	if !strings.Contains(items[0].Detail, "may have been published") {
		t.Error(items[0].Detail)
	}
	proxy.Cut()
	proxy.Restore(t)
	brokertest.Eventually(t, 60*time.Second, "published again", func() bool {
		return r.post("/publish/direct/"+r.queue, "after").StatusCode == http.StatusNoContent
	})
	sent := map[string]int{}
	for d := ""; d != "after"; sent[d]++ {
		d = string(r.get().Body)
	}
	delete(sent, "before")
	if want := map[string]int{"one": 1, "item": 2, "after": 1}; !maps.Equal(sent, want) {
		t.Errorf("the broker got %v, want %v", sent, want)
	}
}

// TestAlarm: an alarm is an answer at once, also for a connection that has not been notified of it, and nothing is
// published by what was refused.
func TestAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	for name, warm := range map[string]bool{"a connection that has published": true, "a fresh one": false} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "", nil)
			if warm {
				r.wantPublished("before", r.post("/publish/default/k", "before"))
				r.get()
			}
			calm := node.Alarm()
			sent := r.post("/publish/default/k", "first") // it notifies the connection; one that has published before may have it unknown
			if warm {
				r.want("the first", sent, http.StatusGatewayTimeout, unknown, "may have been published")
			} else {
				r.want("the first", sent, http.StatusServiceUnavailable, blocked, "alarm")
			}
			for range 20 {
				r.want("in the alarm", r.post("/publish/default/k", "refused"), http.StatusServiceUnavailable, blocked, "Nothing was sent")
			}
			r.want("readiness", r.do(http.MethodGet, "/readyz", nil), http.StatusServiceUnavailable, blocked, "")
			calm()
			brokertest.Eventually(t, time.Minute, "the alarm is over", func() bool {
				return r.post("/publish/default/k", "after").StatusCode == http.StatusNoContent
			})
			if warm {
				r.next("first")
			}
			r.next("after") // none of those that were refused
			if n := r.metric("sidecar_amqp_reconnects_total"); n != 0 {
				t.Errorf("%v reconnects", n)
			}
		})
	}
}

// TestBusy: more than there is room for, in messages and in bytes, is refused at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 2 })
	for range 2 {
		r.server.inflight.Enter()
	}
	r.want("too many messages", r.post("/publish/default/k", "x"), http.StatusServiceUnavailable, busy, "Too many")
	r.server.inflight.Leave()
	r.wantPublished("one of two", r.post("/publish/default/k", "x"))
	c := r.open("/publish/default/k", "", 2, "x")
	brokertest.Eventually(t, time.Minute, "the body is being read", func() bool { return r.memory.Held() > 0 })
	r.server.inflight.Enter()
	r.want("too many when the body has arrived", r.roundTrip(c, "x"), http.StatusServiceUnavailable, busy, "Too many")
	for range 2 {
		r.server.inflight.Leave()
	}
	r.wantPublished("afterwards", r.post("/publish/default/k", "x"))
}

// A body that does not come in time.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Timeout = 500 * time.Millisecond })
	c := r.open("/publish/default/k", "", 10, "five")
	r.want("half a body", r.answer(c), http.StatusBadRequest, invalid, "too slowly")
}

// A client that goes away does not change the outcome of its message, and does not close the connection of others.
func TestClientGone(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	for range 20 {
		r.open("/publish/default/k", "", 1, "x").Close()
	}
	brokertest.Eventually(t, time.Minute, "nothing under way", func() bool { return r.metric("sidecar_publish_inflight") == 0 })
	r.wantPublished("another one", r.post("/publish/default/k", "x"))
	if n := r.metric("sidecar_amqp_reconnects_total"); n != 0 {
		t.Errorf("%v reconnects", n)
	}
}

// underWay begins a publish whose body is still to come.
func (r *rig) underWay() net.Conn {
	r.Helper()
	c := r.open("/publish/default/k", "", 4, "")
	brokertest.Eventually(r, time.Minute, "the request is read", func() bool { return r.memory.Held() > 0 })
	return c
}

// TestShutdown: what is under way is finished, and nothing more is taken.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	c := r.underWay()
	ended := make(chan struct{})
	go func() { defer close(ended); r.stop() }()
	brokertest.Eventually(t, time.Minute, "it stops", func() bool { return r.server.stopping.Load() })
	r.wantPublished("what was under way", r.roundTrip(c, "last"))
	<-ended
	r.next("last")
	if f := r.server.ready(); f != errStopping || r.server.Problem() != "stopping" {
		t.Errorf("%v", f)
	}
}

// A request that does not end is cut off with the time.
func TestShutdownCutsOff(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	c := r.underWay()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.server.Shutdown(ctx)
	if b, _ := io.ReadAll(c); len(b) != 0 && !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("%s", b)
	}
	if !strings.Contains(r.log.String(), "publish requests cut off") {
		t.Error("nothing was logged")
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]code{
		fmt.Errorf("%w: %w", broker.ErrUnknown, broker.ErrBlocked): unknown, &broker.RefusedError{Code: 406, Text: "PRECONDITION_FAILED - other"}: nacked,
		&broker.RefusedError{Code: 406, Text: "PRECONDITION_FAILED - message size 9 is larger than 8"}: tooLarge,
		&broker.RefusedError{Code: 403, Text: "ACCESS_REFUSED"}:                                        forbidden, &broker.RefusedError{Code: 404, Text: "NOT_FOUND"}: unroutable,
		broker.ErrBusy: busy, broker.ErrInvalid: invalid, broker.ErrTooLarge: invalid, io.EOF: unknown,
	} {
		if f := failureOf(err); f.code != want || f.detail == "" {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
