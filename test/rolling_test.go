package test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

// fate says which retry counts the app sees of a message, in order.
type fate struct {
	name   string
	counts []int
	early  bool // the first answer is 425
	parked bool // the app never accepts it
}

// fates are what happens to the messages of a load, in turn.
var fates = []fate{
	{name: "good", counts: []int{0}},
	{name: "late", counts: []int{0, 1}},
	{name: "early", counts: []int{0, 0}, early: true},
	{name: "later", counts: []int{0, 1, 2}},
	{name: "early-late", counts: []int{0, 0, 1}, early: true},
	{name: "bad", counts: []int{0, 1, 2, 3}, parked: true},
}

func (f *fate) answer(nth, retries int) int {
	switch {
	case f.early && nth == 0:
		return http.StatusTooEarly
	case f.parked || retries < f.counts[len(f.counts)-1]:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// rolling is a rolling update of two replicas under a steady stream of messages.
type rolling struct {
	sc       *scene
	p        preset
	variable string
	replicas [2]*sidecar
	all      []*sidecar // of all steps
	stay     time.Duration

	mu     sync.Mutex
	sent   map[string]*fate // by id
	counts map[string][]int // retry counts that the app received, by id
}

// send publishes n messages, with these fates in turn.
func (r *rolling) send(fates []fate, n int) (ids []string) {
	var list []amqp.Publishing
	r.mu.Lock()
	for range n {
		f := &fates[len(r.sent)%len(fates)]
		id := fmt.Sprintf("%s-%d", f.name, len(r.sent))
		r.sent[id] = f
		ids, list = append(ids, id), append(list, message(id))
	}
	r.mu.Unlock()
	r.sc.publish(r.p.exchange, r.p.key, list...)
	return ids
}

func (r *rolling) receive(m *apptest.Request) apptest.Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, retries, nth := r.sent[m.ID], m.Number("Amqp-Retry-Count"), len(r.counts[m.ID])
	r.counts[m.ID] = append(r.counts[m.ID], retries)
	if f == nil {
		r.sc.t.Errorf("the app received %q, which was not sent", m.ID)
		return apptest.Say(apptest.Status(http.StatusOK))
	}
	return apptest.Say(apptest.Status(f.answer(nth, retries)))
}

// missing counts the messages that the app has not received as often as their fate says; of ids, or of all.
func (r *rolling) missing(ids ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, f := range r.sent {
		if len(r.counts[id]) < len(f.counts) && (ids == nil || slices.Contains(ids, id)) {
			n++
		}
	}
	return n
}

// replace stops replica i and starts it with the variable at value. Then it goes on for a while, in which neither replica
// may have anything against the topology.
func (r *rolling) replace(i int, value string) {
	t := r.sc.t
	t.Helper()
	r.replicas[i].stop()
	r.replicas[i] = r.sc.with(r.variable, value).run()
	r.all = append(r.all, r.replicas[i])
	stays(t, r.stay, "the topology fits", func() bool { return r.replicas[0].ready() && r.replicas[1].ready() })
}

// waitsIn sends messages that the app never accepts, and checks by the broker's record of them that they waited in that
// queue, and left by a reject only if they may: a retry that meets a check of the topology leaves by a publish.
func (r *rolling) waitsIn(queue string, byReject bool) {
	t := r.sc.t
	t.Helper()
	ids := r.send([]fate{{name: "probe", counts: fates[len(fates)-1].counts, parked: true}}, 3)
	eventually(t, "the attempts of "+ids[0], func() bool { return r.missing(ids...) == 0 })
	for _, d := range r.parked(ids) {
		if !died(d.Headers, queue, "expired") || !byReject && died(d.Headers, r.p.queue, "rejected") {
			t.Errorf("%s did not wait in %s, or left by a reject: %v", d.MessageId, queue, d.Headers["x-death"])
		}
	}
}

// died reports whether x-death has that entry.
func died(h amqp.Table, queue, reason string) bool {
	list, _ := h["x-death"].([]any)
	return slices.ContainsFunc(list, func(e any) bool {
		death, _ := e.(amqp.Table)
		return death["queue"] == queue && death["reason"] == reason
	})
}

// parked reads these messages in the dead-letter queue, and leaves them there.
func (r *rolling) parked(ids []string) (found []amqp.Delivery) {
	r.sc.t.Helper()
	eventually(r.sc.t, "parked messages", func() bool {
		found = nil
		ch := r.sc.channel()
		defer func() { _ = ch.Close() }() // gives them back
		for {
			d, ok, err := ch.Get(r.p.dlq, false)
			if err != nil || !ok {
				return len(found) == len(ids)
			}
			if slices.Contains(ids, d.MessageId) {
				found = append(found, d)
			}
		}
	})
	return found
}

// check waits until all messages have ended, stops both replicas and compares everything with what was sent.
func (r *rolling) check() {
	t := r.sc.t
	t.Helper()
	for rest, moved := r.missing(), time.Now(); rest > 0 && time.Since(moved) < patience; time.Sleep(50 * time.Millisecond) {
		if now := r.missing(); now != rest {
			rest, moved = now, time.Now()
		}
	}
	for _, s := range r.replicas {
		s.stop()
	}
	dead := map[string]int{} // how often each is parked
	for _, d := range r.sc.take(r.p.dlq, max(r.sc.ready(r.p.dlq), 0)) {
		dead[d.MessageId]++
		if f := r.sent[d.MessageId]; asInt(d.Headers["x-final-retry-count"]) != len(f.counts)-1 {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	ends := r.outcomes()
	for _, s := range r.all {
		if s.log.mentions("topology does not fit") || s.log.mentions("topology fits") {
			t.Errorf("something does not fit:\n%s", s.log.tail(40))
		}
	}
	for id, f := range r.sent {
		wantDead := map[bool]int{true: 1}[f.parked]
		if !slices.Equal(r.counts[id], f.counts) || dead[id] != wantDead || len(ends[id]) != 1 {
			t.Errorf("%s: received with the retry counts %v, want %v; parked %d times, want %d; ended as %v",
				id, r.counts[id], f.counts, dead[id], wantDead, ends[id])
		}
	}
	for _, q := range append([]string{r.p.queue}, r.p.queues...) {
		if n := r.sc.ready(q); n != 0 {
			t.Errorf("%d messages are left in %s", n, q)
		}
	}
	t.Logf("%d messages", len(r.sent))
}

// outcomes are the outcomes in the logs that end a message, by its id.
func (r *rolling) outcomes() map[string][]string {
	all := map[string][]string{}
	for _, s := range r.all {
		for _, e := range s.log.find(func(e entry) bool { return e.text("outcome") == "ack" || e.text("outcome") == "park" }) {
			if id := e.text("message_id"); e["duration_ms"] != nil {
				all[id] = append(all[id], e.text("outcome"))
			}
		}
	}
	return all
}

// TestRollingDelay changes the delay of retries in rolling updates of two replicas, under load, and back again. Nothing
// is lost, nothing stops, nothing is counted twice. With the delays of a user instead of those of a test:
//
//	ROLLING_DELAYS=5s,1s,10s ROLLING_RATE=200 ROLLING_STAY=10s
func TestRollingDelay(t *testing.T) {
	t.Parallel()
	for queueType, i := range map[string]int{"classic": 0, "quorum": 2} { // of presets
		sc := newScene(t)
		p := presets(sc.prefix)[i]
		t.Run(p.name+"/"+queueType, func(t *testing.T) {
			t.Parallel()
			sc.t = t
			sc.with("TOPOLOGY", p.name, "QUEUE_TYPE", queueType).with(p.env...)
			sc.with("REQUEUE_DELAY_MAX", "300ms", "MAX_RETRIES", "3")
			rollThrough(sc, p)
		})
	}
}

// setting is a value of the environment, or what a test takes.
func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func rollThrough(sc *scene, p preset) {
	t := sc.t
	t.Helper()
	r := &rolling{sc: sc, p: p, variable: "RETRY_DELAY", sent: map[string]*fate{}, counts: map[string][]int{}}
	r.stay = must.Get(time.ParseDuration(setting("ROLLING_STAY", "500ms")))(t)
	steps := strings.Split(setting("ROLLING_DELAYS", "500ms,100ms,1s"), ",")
	base := p.queues[0]
	beside := func(step string) string { return base + "." + step }
	byReject := p.name == "fanout"
	if !byReject { // the ladder
		r.variable, steps = "RETRY_DELAYS", []string{"300ms,400ms,500ms", "100ms,200ms,300ms", "600ms,700ms,1s"}
		beside = func(step string) string { return p.queue + ".delay_" + step[strings.LastIndexByte(step, ',')+1:] }
		base = beside(steps[0])
	}
	sc.with(r.variable, steps[0])
	r.replicas = [2]*sidecar{sc.run(), sc.run()}
	r.all = slices.Clone(r.replicas[:])
	sc.app.Otherwise(r.receive)
	rate := must.Get(strconv.Atoi(setting("ROLLING_RATE", "50")))(t)
	finish := steadily(t, 10*time.Second/time.Duration(rate), func() { r.send(fates, 10) })
	r.waitsIn(base, byReject)
	for i, step := range slices.Concat(steps[1:], []string{steps[1], steps[0]}) {
		r.replace(i%2, step)
		r.replace(1-i%2, step)
		if step == steps[0] {
			r.waitsIn(base, byReject)
		} else {
			r.waitsIn(beside(step), false)
		}
	}
	finish()
	r.check()
}
