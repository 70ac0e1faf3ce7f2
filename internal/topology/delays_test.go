package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestAnotherDelay: the queue with the old delay stays, and retries wait beside it.
func TestAnotherDelay(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"by reject, through an exchange": {Service: "wms-in", RetryDelay: time.Second},
		"by publish, to the queue":       {Preset: PresetDeadLetter, Service: "wms-in", Queue: "q", RetryDelay: time.Second, Bindings: []Binding{{Exchange: "e", Key: "k"}}},
		"quorum":                         {Service: "wms-in", RetryDelay: time.Second, QueueType: TypeQuorum},
	} {
		p := build(t, o)
		old := p.Waits[0].Queue
		f := asFound(p, old, amqp.Table{ArgTTL: int64(5000)})
		got, all := p.AsFound(f)
		w := got.Waits[0]
		if w.Queue != old+".1s" || w.By == ByReject || w.Delay != time.Second || len(all) != 1 || all[0].Judgement != Harmless {
			t.Errorf("%s: %+v, %v", name, w, all)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if beside := got.queue(w.Queue); !beside.Beside || !got.Adopts {
			t.Errorf("%s: %+v", name, beside)
		}
		f.Barred = map[string]bool{QueueTitle(w.Queue): true}
		if got, all := p.AsFound(f); got.Waits[0].Queue != old || got.Waits[0].Delay != 5*time.Second || len(all) != 1 || all[0].Judgement != Weaker {
			t.Errorf("%s, the queue cannot be declared: %+v, %v", name, got.Waits[0], all)
		}
		f.Barred = nil
		f.Queues[old][argExpires] = int64(60000)
		if _, all := p.AsFound(f); len(all) != 1 || all[0].Judgement != Weaker {
			t.Errorf("%s, what waits there may go: %v", name, all)
		}
		delete(f.Queues[old], argExpires)
		f.Queues[w.Queue] = got.queue(w.Queue).Properties()
		if again, all := p.AsFound(f); !reflect.DeepEqual(again, got) || len(all) != 1 {
			t.Errorf("%s, second look: %v", name, all)
		}
		f.Queues[w.Queue][ArgTTL] = int64(7)
		if _, all := p.AsFound(f); len(all) != 2 || all[1].Judgement != Breaks {
			t.Errorf("%s, the name is taken: %v", name, all)
		}
	}
}

// two are the delays of options, in milliseconds.
func two(shortest, longest time.Duration) func(*Options) {
	return func(o *Options) {
		o.RetryDelays = []time.Duration{shortest * time.Millisecond, longest * time.Millisecond}
	}
}

// TestOtherDelaysOfTheQueue: a queue that delays by other times keeps them, and retries wait beside it, one queue for each
// end of the range, unless the name of one cannot be had.
func TestOtherDelaysOfTheQueue(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("q", 250)
	for _, c := range []struct {
		name string
		set  func(*Options)
		kind any
		want string
	}{
		{"one delay", func(*Options) {}, delayFailed, "5s wms.queue.wms-in.5s"},
		{"everything waits", func(*Options) {}, delayAll, "5s wms.queue.wms-in.5s"},
		{"nothing waits", func(*Options) {}, delayNothing, "5s in the queue"},
		{"two", two(1000, 60_000), delayFailed, "1s wms.queue.wms-in.1s, 1m0s wms.queue.wms-in.1m"},
		{"as planned", two(9, 90), delayFailed, "9ms in the queue"},
		{"another longest", two(9, 1000), delayFailed, "9ms wms.queue.wms-in.9ms, 1s wms.queue.wms-in.1s"},
		{"another shortest", two(1, 90), delayFailed, "1ms wms.queue.wms-in.1ms, 90ms wms.queue.wms-in.90ms"},
		{"a dead-letter queue of that name", func(o *Options) { o.DLQ = "wms.queue.wms-in.5s" }, delayFailed, "5s in the queue"},
		{"a long name", func(o *Options) { o.Queue, o.RetryDelays = long, []time.Duration{time.Second, 1250 * time.Millisecond} }, delayFailed, "1s in the queue"},
	} {
		o := Options{Preset: PresetNative, Service: "wms-in"}
		c.set(&o)
		p := build(t, o)
		f := asFound(p, p.Queue, amqp.Table{ArgRetryType: c.kind, ArgRetryMin: int64(9), ArgRetryMax: int64(90)})
		got, _ := p.AsFound(f)
		var waits []string
		for _, w := range got.Waits {
			if w.By == ByDelay {
				w.Queue = "in the queue"
			} else if q := got.queue(w.Queue); !q.Beside || q.Args[ArgTTL] != w.Delay.Milliseconds() || !atLeastOnce(q.Args) || q.Args[ArgDLKey] != p.Queue {
				t.Errorf("%s: %+v", c.name, q)
			}
			waits = append(waits, w.Delay.String()+" "+w.Queue)
		}
		if text := strings.Join(waits, ", "); text != c.want || got.Tiered != (len(waits) > 1) {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !p.DelaysItself() || got.DelaysItself() != strings.Contains(c.want, "in the queue") {
			t.Errorf("%s: delays itself: %v", c.name, got.DelaysItself())
		}
		f.Barred = map[string]bool{QueueTitle(got.Waits[0].Queue): true}
		if got, _ := p.AsFound(f); !got.DelaysItself() {
			t.Errorf("%s, and a queue that cannot be declared: %+v", c.name, got.Waits)
		}
	}
}

// TestAnotherDelayThatCannotBeBeside: a queue beside the old one is no way where the exchange would copy retries into both,
// or where redriven messages wait in a queue that does not return them.
func TestAnotherDelayThatCannotBeBeside(t *testing.T) {
	t.Parallel()
	fanout := build(t, Options{Service: "wms-in", RetryDelay: time.Second, QueueType: TypeClassic})
	fanout.exchange(fanout.Waits[0].Exchange).Type = "fanout"
	redriven := build(t, Options{Preset: PresetPerQueue, Service: "in", RetryDelay: time.Second, Bindings: []Binding{{Exchange: "domain.events", Key: "k"}}})
	for name, c := range map[string]struct {
		p     *Plan
		found amqp.Table
	}{
		"an exchange that copies":         {fanout, amqp.Table{ArgTTL: int64(5000)}},
		"redriven messages do not return": {redriven, amqp.Table{ArgTTL: int64(5000), ArgDLX: nil, ArgDLKey: nil}},
	} {
		got, all := c.p.AsFound(asFound(c.p, c.p.Waits[0].Queue, c.found))
		if got.Waits[0].Queue != c.p.Waits[0].Queue || len(all) == 0 || all[0].Judgement != Breaks {
			t.Errorf("%s: %+v, %v", name, got.Waits[0], all)
		}
	}
}

// TestKeptDelaysStayAscending: a wait is chosen by its delay.
func TestKeptDelaysStayAscending(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-in", RetryDelays: []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute}})
	second := p.Waits[1].Queue
	f := asFound(p, second, amqp.Table{ArgTTL: time.Hour.Milliseconds()})
	f.Barred = map[string]bool{QueueTitle(second + ".5m"): true}
	got, all := p.AsFound(f)
	if len(all) != 1 || got.Waits[2].Queue != second || got.Waits[2].Delay != time.Hour || !slices.IsSortedFunc(got.Waits, func(a, b WaitPath) int { return int(a.Delay - b.Delay) }) {
		t.Errorf("%v, %+v", all, got.Waits)
	}
}

// TestDelayOfAPlanWithoutRetries: its queue can have the arguments all the same, and one that exists can lack them.
func TestDelayOfAPlanWithoutRetries(t *testing.T) {
	t.Parallel()
	p := must.Get(Build(Options{Service: "wms-in", Preset: PresetNative}))(t)
	p.Waits, p.MaxRetries, p.FromFile = nil, 0, true
	_, all := p.AsFound(asFound(p, p.Queue, amqp.Table{ArgRetryType: nil}))
	if len(all) != 1 || !strings.Contains(all[0].Fix, `"delayed-retry-min":5000,"delayed-retry-max":5000`) {
		t.Errorf("%+v", all)
	}
}
