package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// TestSeveralQueues: one queue of a sidecar is deleted, the channel of another is closed, the path of a third hangs (the
// storm of make chaos-queues has more). Meanwhile a message of every other queue is under way, and others arrive: each is
// handled once and none is parked, all on the connection that was made first. The queue itself goes on afterwards.
func TestSeveralQueues(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	names := []string{"deleted", "closed", "hanging"}
	for _, name := range names {
		sc.with("SUB_"+strings.ToUpper(name)+"_APP_URL", sc.app.url()+name)
	}
	sc.with("SUBSCRIPTIONS", strings.Join(names, ","), "APP_TIMEOUT", "2m") // no timeout ends what is held
	gate := make(chan struct{})
	held := answer{status: http.StatusOK, gate: gate}
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.id, "held") || strings.HasPrefix(d.id, "hangs") {
			return held
		}
		return status(http.StatusOK)
	})
	s := sc.run()
	put := func(name, label string, n int) []string {
		ids := numbered(label+"-"+name, n)
		sc.publish("", sc.queue()+"."+name, messages(ids...)...)
		return ids
	}
	handled := map[string][]string{} // by subscription
	for i, trouble := range []func(queue string){
		sc.deleteQueue,
		func(queue string) { endChannel(t, queue) },
		func(string) { sc.app.await(put("hanging", "hangs", 30)[0], 1) },
	} {
		victim := names[i]
		for _, name := range names {
			if name != victim {
				ids := put(name, fmt.Sprint("held", i), 1)
				sc.app.awaitAll(ids...)
				handled[name] = append(handled[name], ids...)
			}
		}
		queue := sc.queue() + "." + victim
		trouble(queue)
		for _, name := range names {
			if name != victim {
				ids := put(name, fmt.Sprint("trouble", i), 10)
				sc.app.awaitAll(ids...)
				handled[name] = append(handled[name], ids...)
			}
		}
		eventually(t, "it is consumed again: "+victim, func() bool { return sc.consumers(queue) == 1 })
	}
	close(gate)
	for _, name := range names {
		sc.app.awaitAll(put(name, "after", 1)...)
		for _, id := range handled[name] {
			if n := len(sc.app.Seen(id)); n != 1 {
				t.Errorf("message %s of %s was POSTed %d times", id, name, n)
			}
		}
		if n := sc.ready(sc.dlq() + "." + name); n > 0 {
			t.Errorf("%d messages of %s were parked", n, name)
		}
	}
	if n := len(s.log.find(func(e entry) bool {
		return e.is("broker connected") && strings.Contains(e.text("connection"), "consume")
	})); n != 1 {
		t.Errorf("%d connections were made to consume", n)
	}
	s.stop()
}

// endChannel makes the broker close the channel that consumes the queue.
func endChannel(t *testing.T, queue string) {
	t.Helper()
	closed := brokertest.Eval(t, fmt.Sprintf(`length([P || C <- rabbit_amqqueue:consumers_all(<<%q>>),
		{queue_name, {resource, _, _, <<%q>>}} <- C, {channel_pid, P} <- C,
		ok =:= gen_server:cast(P, {method, {'basic.ack', 123456789, false}, none, noflow}),
		begin R = monitor(process, P), receive {'DOWN', R, process, P, _} -> true after 60000 -> false end end])`,
		brokertest.VhostName(t), queue))
	if closed != "1" {
		t.Errorf("%s channels were closed", closed)
	}
}
