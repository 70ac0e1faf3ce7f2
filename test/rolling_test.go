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
)

// fates are what happens to the messages of a load, in turn.
var fates = []fate{
	{name: "good", counts: []int{0}},
	{name: "late", counts: []int{0, 1}},
	{name: "good", counts: []int{0}},
	{name: "early", counts: []int{0, 0}, early: true},
	{name: "later", counts: []int{0, 1, 2}},
	{name: "good", counts: []int{0}},
	{name: "early-late", counts: []int{0, 0, 1}, early: true},
	{name: "bad", counts: []int{0, 1, 2, 3}, parked: true},
}

// fate says which retry counts the app sees of a message, in order.
type fate struct {
	name   string
	counts []int
	early  bool // the first answer is 425
	parked bool // the app never accepts it
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

// load is a steady stream of messages, and what the app received of them.
type load struct {
	sc     *scene
	p      preset
	finish func() // sends no more

	mu     sync.Mutex
	sent   map[string]*fate // by id
	counts map[string][]int // retry counts that the app received, by id
}

// newLoad sends rate messages a second until finish.
func newLoad(sc *scene, p preset, rate int) *load {
	l := &load{sc: sc, p: p, sent: map[string]*fate{}, counts: map[string][]int{}}
	sc.app.Otherwise(l.receive)
	const batch = 10
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			l.send(fates, batch)
			select {
			case <-stop:
				return
			case <-time.After(time.Second * batch / time.Duration(rate)):
			}
		}
	})
	l.finish = sync.OnceFunc(func() { close(stop); sending.Wait() })
	sc.t.Cleanup(l.finish)
	return l
}

// send publishes n messages, with these fates in turn.
func (l *load) send(fates []fate, n int) (ids []string) {
	var list []amqp.Publishing
	l.mu.Lock()
	for range n {
		f := &fates[len(l.sent)%len(fates)]
		id := fmt.Sprintf("%s-%d", f.name, len(l.sent))
		l.sent[id] = f
		ids, list = append(ids, id), append(list, message(id))
	}
	l.mu.Unlock()
	l.sc.publish(l.p.exchange, l.p.key, list...)
	return ids
}

func (l *load) receive(r *apptest.Request) apptest.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, retries, nth := l.sent[r.ID], r.Number("Amqp-Retry-Count"), len(l.counts[r.ID])
	l.counts[r.ID] = append(l.counts[r.ID], retries)
	if f == nil {
		l.sc.t.Errorf("the app received %q, which was not sent", r.ID)
		return apptest.Say(apptest.Status(http.StatusOK))
	}
	return apptest.Say(apptest.Status(f.answer(nth, retries)))
}

// settled reports whether the app received every message as often as its fate says. The rest is how many it did not.
func (l *load) settled() (rest int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, f := range l.sent {
		if len(l.counts[id]) < len(f.counts) {
			rest++
		}
	}
	return rest
}

// rolling is a rolling update of two replicas under load.
type rolling struct {
	*load
	variable string
	replicas [2]*sidecar
	all      []*sidecar // of all steps
	stay     time.Duration
}

// replace stops replica i and starts it with the variable at value.
func (r *rolling) replace(i int, value string) {
	r.sc.t.Helper()
	r.replicas[i].stop()
	r.replicas[i] = r.sc.with(r.variable, value).run()
	r.all = append(r.all, r.replicas[i])
	r.running()
}

// running goes on for a while, in which neither replica may have anything against the topology.
func (r *rolling) running() {
	r.sc.t.Helper()
	stays(r.sc.t, r.stay, "the topology fits", func() bool {
		for _, s := range r.replicas {
			if status, body := s.get(s.admin, "/readyz"); status != http.StatusOK {
				r.sc.t.Errorf("/readyz is %d: %s", status, body)
				return false
			}
		}
		return true
	})
}

// waitsIn sends messages that the app never accepts, and checks by the broker's record of them that all their retries
// waited in that queue, and whether each left by a reject.
func (r *rolling) waitsIn(queue string, byReject bool) {
	t := r.sc.t
	t.Helper()
	never := []fate{{name: "probe", counts: fates[len(fates)-1].counts, parked: true}}
	ids := r.send(never, 3)
	eventually(t, "the attempts of "+ids[0], func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !slices.ContainsFunc(ids, func(id string) bool { return len(r.counts[id]) < len(never[0].counts) })
	})
	for _, s := range r.parked(ids) {
		expired, rejected := deathCount(s.Headers, queue, "expired"), deathCount(s.Headers, r.p.queue, "rejected")
		if expired < 1 || (rejected == len(never[0].counts)-1) != byReject {
			t.Errorf("%s did not wait in %s (by reject: %v): %v", s.MessageId, queue, byReject, s.Headers["x-death"])
		}
	}
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
	r.finish()
	rest, moved := r.settled(), time.Now()
	for rest > 0 && time.Since(moved) < patience {
		time.Sleep(50 * time.Millisecond)
		if now := r.settled(); now != rest {
			rest, moved = now, time.Now()
		}
	}
	for _, s := range r.replicas {
		s.stop()
	}
	dead := map[string][]amqp.Delivery{}
	for _, d := range r.sc.take(r.p.dlq, max(r.sc.ready(r.p.dlq), 0)) {
		dead[d.MessageId] = append(dead[d.MessageId], d)
	}
	acked, parked, wrong := 0, 0, 0
	outcomes := r.outcomes()
	for id, f := range r.sent {
		problem := r.problem(id, f, dead[id])
		if ended := outcomes[id]; problem == "" && len(ended) != 1 {
			problem = fmt.Sprintf("ended as %v", ended)
		}
		switch {
		case problem != "":
			if wrong++; wrong <= 20 {
				t.Errorf("%s: %s", id, problem)
			}
		case f.parked:
			parked++
		default:
			acked++
		}
	}
	t.Logf("sent %d, acked %d, parked %d, wrong %d", len(r.sent), acked, parked, wrong)
	r.quiet()
}

// problem is what is wrong with the message; empty: nothing.
func (r *rolling) problem(id string, f *fate, parked []amqp.Delivery) string {
	switch {
	case !slices.Equal(r.counts[id], f.counts):
		return fmt.Sprintf("the app received it with the retry counts %v, want %v", r.counts[id], f.counts)
	case f.parked && len(parked) != 1:
		return fmt.Sprintf("parked %d times", len(parked))
	case f.parked && asInt(parked[0].Headers["x-final-retry-count"]) != len(f.counts)-1:
		return fmt.Sprintf("parked with %v", parked[0].Headers)
	case !f.parked && len(parked) > 0:
		return "accepted and parked"
	}
	return ""
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

// quiet checks that no replica ever had anything against the topology, and that no queue holds a message.
func (r *rolling) quiet() {
	t := r.sc.t
	t.Helper()
	for _, s := range r.all {
		if s.log.mentions("topology does not fit") || s.log.mentions("topology fits") {
			t.Errorf("something does not fit:\n%s", s.log.tail(40))
		}
	}
	for _, q := range append([]string{r.p.queue}, r.p.queues...) {
		if n := r.sc.ready(q); n != 0 {
			t.Errorf("%d messages are left in %s", n, q)
		}
	}
}

// TestRollingDelay changes the delay of retries in rolling updates of two replicas, under load, and back again. Nothing
// is lost, nothing stops, nothing is counted twice. With the delays of a user instead of those of a test:
//
//	ROLLING_DELAYS=5s,1s,10s ROLLING_RATE=200 ROLLING_STAY=10s
func TestRollingDelay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		preset    int // of presets
		queueType string
	}{{0, "classic"}, {0, "quorum"}, {3, "classic"}, {3, "quorum"}, {5, "classic"}, {4, "quorum"}} {
		sc := newScene(t)
		p := presets(sc.prefix)[tc.preset]
		t.Run(p.name+"/"+tc.queueType, func(t *testing.T) {
			t.Parallel()
			sc.t = t
			sc.with("TOPOLOGY", p.name, "QUEUE_TYPE", tc.queueType).with(p.env...)
			sc.with("REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms", "MAX_RETRIES", "3")
			rollThrough(sc, p)
		})
	}
}

// setting is a number of the environment, or what a test takes.
func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func rollThrough(sc *scene, p preset) {
	t := sc.t
	t.Helper()
	rate, err := strconv.Atoi(setting("ROLLING_RATE", "50"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rolling{variable: "RETRY_DELAY"}
	if r.stay, err = time.ParseDuration(setting("ROLLING_STAY", "500ms")); err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(setting("ROLLING_DELAYS", "500ms,100ms,1s"), ",")
	base := p.queues[0]
	beside := func(step string) string { return base + "." + step }
	if p.name == "delay-ladder" {
		r.variable, steps = "RETRY_DELAYS", []string{"300ms,400ms,500ms", "100ms,200ms,300ms", "600ms,700ms,1s"}
		beside = func(step string) string { return p.queue + ".delay_" + step[strings.LastIndexByte(step, ',')+1:] }
		base = beside(steps[0])
	}
	byReject := p.name != "delay-ladder" && p.name != "dead-letter"
	sc.with(r.variable, steps[0])
	r.replicas = [2]*sidecar{sc.run(), sc.run()}
	r.all = slices.Clone(r.replicas[:])
	r.load = newLoad(sc, p, rate)
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
	r.check()
}
