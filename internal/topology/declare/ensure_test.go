package declare

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// variants are plans of each preset to declare on a broker. No two share a name.
func variants(t testing.TB) map[string]*topology.Plan {
	tiers := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
	bound := func(exchange string) []topology.Binding { return []topology.Binding{{Exchange: exchange, Key: "a"}} }
	plans := map[string]*topology.Plan{}
	for name, o := range map[string]topology.Options{
		"topic-tiers":  {Preset: topology.PresetTopicTiers, Service: "t-x", QueueType: "classic", RetryDelays: tiers},
		"per-queue":    {Preset: topology.PresetPerQueue, Service: "p", QueueType: "classic", RetryDelay: tiers[0], Exchange: "events", Bindings: bound("events")},
		"delay-ladder": {Preset: topology.PresetDelayLadder, Service: "l-x", QueueType: "classic", RetryDelays: tiers, Bindings: bound("l.events")},
		"dead-letter":  {Preset: topology.PresetDeadLetter, Service: "d-x", QueueType: "classic", Queue: "d", RetryDelay: tiers[0], Bindings: bound("d")},
		"fanout":       {Service: "f-x", RetryDelay: tiers[0], QueueType: "classic"},
		"quorum tiers": {Service: "q-x", RetryDelays: tiers, QueueType: "quorum"},
		"every override": {
			Service: "wms-cincout", Prefix: "p", Exchange: "x", ExchangeType: "topic", Queue: "q", RetryExchange: "rx",
			RetryQueue: "rq", DLX: "dx", DLQ: "d2", Bindings: append(bound("x"), topology.Binding{Exchange: "amq.direct", Key: "k"}),
			RetryDelay: tiers[0], QueueType: "classic",
		},
	} {
		plans[name] = build(t, o)
	}
	return plans
}

// TestEnsure: one by one and in one round trip each object that does not fit is noticed, the first as well as the last.
// Only one by one it is made.
func TestEnsure(t *testing.T) {
	t.Parallel()
	for name, p := range variants(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := brokertest.URL(t)
			atOnce := func(mode topology.Mode) bool { return Compare(t.Context(), session(t, url), p, mode) }
			missing := ensure(t, url, p, topology.ModeVerify)
			want := len(p.Exchanges) + len(p.Queues)
			if name == "every override" {
				want-- // amq.direct is always there
			}
			if len(missing) != want {
				t.Errorf("%d findings in an empty virtual host, want %d: %v", len(missing), want, missing)
			}
			for _, f := range missing {
				if f.Problem != ProblemMissing {
					t.Errorf("%s", f)
				}
			}
			if f := ensure(t, url, p, topology.ModeNone); f != nil || !atOnce(topology.ModeNone) {
				t.Errorf("checked although it must not: %v", f)
			}
			if atOnce(topology.ModeDeclare) {
				t.Error("nothing is there, and it fits")
			}
			fits(t, url, p, topology.ModeDeclare)
			fits(t, url, p, topology.ModeVerify)
			travels(t, url, p)
			ch := channel(t, url)
			for i := range p.Queues {
				q := p.Queues[i].Name
				must.Get(ch.QueueDelete(q, false, false, false))(t)
				if atOnce(topology.ModeVerify) || atOnce(topology.ModeDeclare) {
					t.Errorf("%s is gone, and it was not reported", q)
				}
				must.Get(ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-max-length": 1}))(t)
				if atOnce(topology.ModeVerify) || atOnce(topology.ModeDeclare) {
					t.Errorf("%s is different, and it was not reported", q)
				}
				must.Get(ch.QueueDelete(q, false, false, false))(t)
				fits(t, url, p, topology.ModeDeclare)
			}
			remove(t, ch, p)
			for range 2 { // declaring again changes nothing
				fits(t, url, p, topology.ModeDeclare)
				travels(t, url, p)
			}
			if !atOnce(topology.ModeVerify) || !atOnce(topology.ModeDeclare) {
				t.Error("does not fit")
			}
		})
	}
}

// TestCompareTakesOneRoundTrip: opening the channel, and asking.
func TestCompareTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout"})
	for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
		s := &counted{Session: session(t, url)}
		if !Compare(context.Background(), s, p, mode) {
			t.Errorf("%s: does not fit", mode)
		}
		if n := s.asked.Load(); n != 1 {
			t.Errorf("%s: %d calls to the broker, want 1", mode, n)
		}
	}
}

// counted counts the calls to the broker other than those that open and close channels.
type counted struct {
	Session
	asked atomic.Int64
}

func (c *counted) Do(ctx context.Context, name string, fn func() error) error {
	if name != "close channel" {
		c.asked.Add(1)
	}
	return c.Session.Do(ctx, name, fn)
}

func TestEnsureRepairs(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Millisecond})
	w, ch := p.Waits[0], channel(t, url)
	damage := map[string]func() error{
		"binding":  func() error { return ch.QueueUnbind(w.Queue, w.Key, w.Exchange, nil) },
		"exchange": func() error { return ch.ExchangeDelete(w.Exchange, false, false) },
	}
	for name, do := range damage {
		must.Do(t, do())
		fits(t, url, p, topology.ModeDeclare)
		publish(t, url, w.Exchange, w.Key, amqp.Publishing{Body: []byte(name)})
		if d := brokertest.Get(t, url, p.Queue, soon); string(d.Body) != name {
			t.Errorf("got %q", d.Body)
		}
	}
}

// remove takes a plan's objects out of a virtual host.
func remove(t testing.TB, ch *amqp.Channel, p *topology.Plan) {
	t.Helper()
	for _, o := range ours(p) {
		o.delete(t, ch)
	}
}

// overtaking does something right before a question of that name is asked, as often as it is asked.
type overtaking struct {
	Session
	name  string
	first func()
}

func (o overtaking) Do(ctx context.Context, name string, fn func() error) error {
	if name == o.name {
		o.first()
	}
	return o.Session.Do(ctx, name, fn)
}

// TestEnsureIsOvertaken: between the inspection of an object and its declaration another process makes it otherwise, or
// deletes it. What it did is used, at once.
func TestEnsureIsOvertaken(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	w := p.Waits[0]
	t.Run("by a replica with another delay", func(t *testing.T) {
		t.Parallel()
		url := brokertest.URL(t)
		other := build(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Second})
		s := overtaking{session(t, url), "declare " + topology.QueueTitle(w.Queue), func() { fits(t, url, other, topology.ModeDeclare) }}
		r := must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t)
		if len(r.Findings) != 1 || len(r.Blocking()) > 0 || r.Plan.Waits[0].Queue != w.Queue+".5s" {
			t.Errorf("%v, %+v", r.Findings, r.Plan.Waits)
		}
		travels(t, url, r.Plan)
	})
	t.Run("by a deletion", func(t *testing.T) {
		t.Parallel()
		url := brokertest.URL(t)
		fits(t, url, p, topology.ModeDeclare)
		ch := channel(t, url)
		once := sync.OnceFunc(func() { must.Get(ch.QueueDelete(w.Queue, false, false, false))(t) })
		s := overtaking{session(t, url), "declare " + (&topology.Binding{Exchange: w.Exchange, Key: w.Key, Queue: w.Queue}).Title(), once}
		if r := must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t); len(r.Findings) > 0 {
			t.Errorf("%v", r.Findings)
		}
		fits(t, url, p, topology.ModeVerify)
	})
	t.Run("always", func(t *testing.T) {
		t.Parallel()
		url, n := brokertest.URL(t), 0
		ch := channel(t, url)
		s := overtaking{session(t, url), "declare " + (&topology.Binding{Exchange: w.Exchange, Key: w.Key, Queue: w.Queue}).Title(), func() {
			n++
			must.Get(ch.QueueDelete(w.Queue, false, false, false))(t)
		}}
		if r := must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t); len(r.Blocking()) != 1 || n != 3 {
			t.Errorf("after %d tries: %v", n, r.Findings)
		}
	})
}

// TestFoundPlanOnAnEmptyBroker: what was found is gone with everything else, such as after a broker lost its data. It is
// not a plan for new objects.
func TestFoundPlanOnAnEmptyBroker(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	ch := channel(t, url)
	p := build(t, topology.Options{Service: "wms-cincout", QueueType: topology.TypeQuorum})
	asked := build(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Second, QueueType: topology.TypeQuorum})
	fits(t, url, asked, topology.ModeDeclare)
	r := must.Get(Ensure(t.Context(), session(t, url), p, topology.ModeDeclare))(t)
	if len(r.Blocking()) > 0 || !r.Plan.Quorum || !Compare(t.Context(), session(t, url), r.Plan, topology.ModeDeclare) {
		t.Fatalf("%v", r.Findings)
	}
	remove(t, ch, r.Plan)
	if Compare(t.Context(), session(t, url), r.Plan, topology.ModeDeclare) {
		t.Error("nothing of it is there")
	}
	for _, q := range r.Plan.Queues {
		if brokertest.Ready(t, url, q.Name) >= 0 {
			t.Errorf("%s was declared", q.Name)
		}
	}
	fits(t, url, p, topology.ModeDeclare)
}

// TestBarredQueueOfAnotherDelay: where the queue of a new delay cannot be declared, nothing stops: retries wait with
// the delay of the existing queue.
func TestBarredQueueOfAnotherDelay(t *testing.T) {
	t.Parallel()
	url, old := declared(t, topology.Options{Service: "wms-cincout"})
	p := build(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Second})
	waitsFiveSeconds := func(r Report, mode topology.Mode) {
		t.Helper()
		w := r.Plan.Waits[0]
		if len(r.Findings) != 1 || r.Findings[0].Judgement != topology.Weaker || !strings.HasPrefix(r.Findings[0].Fix, "set SIDECAR_RETRY_DELAY to 5s, or") {
			t.Errorf("%s: %v", mode, r.Findings)
		}
		if w.Delay != 5*time.Second || w.Queue != old.Waits[0].Queue {
			t.Errorf("%s: %+v", mode, w)
		}
	}
	u := oneUser(t)(old.Permissions(topology.ModeDeclare))
	for mode, as := range map[topology.Mode]string{topology.ModeVerify: url, topology.ModeDeclare: u} {
		r := must.Get(Ensure(t.Context(), session(t, as), p, mode))(t)
		waitsFiveSeconds(r, mode)
		if !Compare(t.Context(), session(t, as), r.Plan, mode) {
			t.Errorf("%s: does not fit when asked again", mode)
		}
	}
	waitsFiveSeconds(must.Get(Inspect(t.Context(), session(t, url), p, topology.ModeVerify))(t), "inspected for verify")
	r := must.Get(Inspect(t.Context(), session(t, url), p, topology.ModeDeclare))(t)
	if f := r.Blocking(); len(f) != 1 || f[0].Problem != ProblemMissing || !strings.Contains(f[0].Fix, "sidecar run") {
		t.Errorf("inspected for declare: %v", r.Findings)
	}
}

// TestUnseenIsAskedForOnce: what the user may not compare costs one round trip from then on, and no refusal.
func TestUnseenIsAskedForOnce(t *testing.T) {
	t.Parallel()
	_, p := declared(t, topology.Options{Preset: topology.PresetTopicTiers, Service: "freeflow-user"})
	with := oneUser(t)
	declares := topology.Permissions{Configure: `^freeflow\.user.*`, Write: `^(freeflow\.user.*|freeflow\.events.*|amq\.default)$`, Read: `^freeflow\.(user.*|events.*)$`}
	for mode, rights := range map[topology.Mode]topology.Permissions{topology.ModeDeclare: declares, topology.ModeVerify: p.Permissions(topology.ModeVerify)} {
		u := with(rights)
		r := must.Get(Ensure(t.Context(), session(t, u), p, mode))(t)
		if len(r.Findings) > 0 || (r.Plan.RequeueLimit > 0) != (mode == topology.ModeVerify) {
			t.Errorf("%s: %v, %d", mode, r.Findings, r.Plan.RequeueLimit)
		}
		if Compare(t.Context(), session(t, u), p, mode) || !Compare(t.Context(), session(t, u), r.Plan, mode) {
			t.Errorf("%s: what was found does not fit", mode)
		}
		if f, err := Preflight(t.Context(), session(t, u), p, mode); err != nil || f != nil { // others may own what is shared
			t.Errorf("%s: %v, %v", mode, f, err)
		}
	}
}
