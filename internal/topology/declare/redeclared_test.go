package declare

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func delaysNothing() (int, bool) { return 0, false }

// checked makes a check in mode declare and returns what it reports.
func checked(t *testing.T, s Session, p *topology.Plan, seen *Sightings) []Redeclared {
	t.Helper()
	begun := time.Now()
	r := must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t)
	return append(seen.Declared(&r, begun), seen.Checked(r.Plan, r.Findings, begun)...)
}

// watched are two plans that differ most in their objects.
func watched(t testing.TB) map[string]*topology.Plan {
	all := variants(t)
	return map[string]*topology.Plan{"classic": all["per-queue"], "quorum": all["quorum tiers"]}
}

// ours lists the objects of a plan that are not the broker's own.
func ours(p *topology.Plan) []object {
	return slices.DeleteFunc(objects(p), func(o object) bool { return strings.HasPrefix(o.name, "amq.") })
}

// kindOf is the kind of an object, as it is counted.
func kindOf(o *object) topology.Kind {
	if o.queue == nil {
		return KindExchange
	}
	return o.queue.Kind
}

// delete takes an object away, as another client does.
func (o *object) delete(t testing.TB, ch *amqp.Channel) {
	t.Helper()
	if o.queue == nil {
		must.Do(t, ch.ExchangeDelete(o.name, false, false))
		return
	}
	must.Get(ch.QueueDelete(o.name, false, false, false))(t)
}

// TestDeclaredAgain: each object that is deleted is missed, declared again and reported with its kind.
// The first declaration is not reported, nor is one by a process that has not seen the object.
func TestDeclaredAgain(t *testing.T) {
	t.Parallel()
	for name, p := range watched(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, total := brokertest.URL(t), NewRedeclaredTotal(prometheus.NewRegistry())
			s, ch := session(t, url), channel(t, url)
			check := func(seen *Sightings) []Redeclared { return checked(t, s, p, seen) }
			seen := NewSightings(total, delaysNothing)
			if again := check(seen); len(again) > 0 {
				t.Errorf("on an empty broker: %v", again)
			}
			want := map[topology.Kind]int{}
			for _, o := range ours(p) {
				kind := kindOf(&o)
				o.delete(t, ch)
				want[kind]++
				if Compare(t.Context(), s, p, topology.ModeDeclare) {
					t.Errorf("%s is gone, and it was not missed", o.title)
				}
				again := check(seen)
				if len(again) != 1 || again[0].Object != o.title || again[0].Kind != kind || again[0].LastDepth != nil {
					t.Errorf("%s: %+v", o.title, again)
				}
				if again := check(NewSightings(total, delaysNothing)); len(again) > 0 {
					t.Errorf("another process: %v", again)
				}
			}
			for _, kind := range []topology.Kind{topology.KindMain, topology.KindRetry, topology.KindDLQ, KindExchange} {
				if n := testutil.ToFloat64(total.WithLabelValues(string(kind))); n != float64(want[kind]) {
					t.Errorf("%s: counted %v, want %d", kind, n, want[kind])
				}
			}
			if n := testutil.CollectAndCount(total); n != 4 {
				t.Errorf("%d series, want one for each kind", n)
			}
			remove(t, ch, p) // as a broker that was reset
			before := len(seen.Recent())
			if again := check(seen); len(again) == 0 || len(seen.Recent()) != before+len(again) {
				t.Errorf("%d of an empty broker, %d shown, %d before", len(again), len(seen.Recent()), before)
			}
			fits(t, url, p, topology.ModeVerify)
		})
	}
}

// TestRedeclaredIsShown with the depth of the last measurement and its age, and for an hour.
func TestRedeclaredIsShown(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	s := NewSightings(NewRedeclaredTotal(prometheus.NewRegistry()), delaysNothing)
	measured := time.Now().Add(-12 * time.Second)
	s.Measured([]Depth{{Queue: p.Queue, Kind: topology.KindMain, Ready: 2400}}, measured)
	checked := measured.Add(time.Second)
	s.Checked(p, []Finding{{Object: topology.QueueTitle(p.Park.Queue), Problem: ProblemMissing}}, checked)
	again := s.Declared(&Report{Plan: p, declared: objects(p)}, time.Now())
	if len(again) != len(objects(p))-1 {
		t.Errorf("%v: the dead-letter queue was never seen", again)
	}
	main := again[len(again)-1]
	want := `queue "wms.queue.wms-cincout" (main) was deleted and was declared again at ` + main.At.UTC().Format(time.RFC3339) +
		`: messages may be lost since ` + checked.UTC().Format(time.RFC3339) + `; 2400 were ready in it 12s before`
	if main.String() != want || !main.LostSince.Equal(checked) || !main.MeasuredAt.Equal(measured) {
		t.Errorf("%s\nwant %s", main.String(), want)
	}
	if len(s.Recent()) != len(again) {
		t.Errorf("%v", s.Recent())
	}
	other := NewSightings(s.total, delaysNothing) // of another subscription, which noticed the same deletions
	other.Checked(p, nil, checked)
	if again := other.Declared(&Report{Plan: p, declared: objects(p)}, checked); len(again) != 1 {
		t.Errorf("counted twice: %v", again)
	}
	for i := range s.again {
		s.again[i].At = s.again[i].At.Add(-shownFor)
	}
	if recent := s.Recent(); len(recent) > 0 {
		t.Errorf("after an hour: %v", recent)
	}
}

// TestEachDeletionIsShown: a later deletion does not replace an earlier one, and a depth that was not measured in between
// is unknown. Of very many deletions the oldest are left out.
func TestEachDeletionIsShown(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	s := NewSightings(NewRedeclaredTotal(prometheus.NewRegistry()), delaysNothing)
	deleted := func() Redeclared {
		t.Helper()
		own := queueOf(&topology.Queue{Name: p.Queue, Kind: topology.KindMain})
		again := s.Declared(&Report{Plan: p, declared: []object{own}}, time.Now())
		s.Checked(p, nil, time.Now())
		if len(again) != 1 {
			t.Fatalf("%v", again)
		}
		return again[0]
	}
	s.Measured([]Depth{{Queue: p.Queue, Kind: topology.KindMain, Ready: 50}}, time.Now())
	shown := []Redeclared{deleted()}
	for range 2 * maxShown {
		unmeasured := deleted()
		if r := unmeasured.Reason(); unmeasured.LastDepth != nil || !strings.HasSuffix(r, "; how many were ready in it is unknown") {
			t.Fatal(r)
		}
		shown = append(shown, unmeasured)
		if recent := s.Recent(); !slices.Equal(recent, shown[max(len(shown)-maxShown, 0):]) {
			t.Fatalf("%d are shown, the first is %v", len(recent), recent[0])
		}
	}
}

// TestDeletionsOfAMergedFinding: one finding about the missing right to declare several objects says of each that it was
// deleted, after the reason that the finding had.
func TestDeletionsOfAMergedFinding(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	s := NewSightings(NewRedeclaredTotal(prometheus.NewRegistry()), delaysNothing)
	s.Checked(p, nil, time.Now())
	park, own := topology.QueueTitle(p.Park.Queue), topology.QueueTitle(p.Queue)
	report := func() *Report {
		return &Report{Plan: p, missing: map[string]bool{park: true, own: true}, Findings: []Finding{
			{Object: park + ", " + own, Problem: ProblemPermission, Reason: "no right"}, {Object: park, Problem: ProblemMissing},
		}}
	}
	first := report()
	s.Declared(first, time.Now())
	for _, want := range []string{"no right; ", park + " was deleted: messages may be lost", own + " was deleted: messages may be lost"} {
		if !strings.Contains(first.Findings[0].Reason, want) {
			t.Errorf("%q, want %q", first.Findings[0].Reason, want)
		}
	}
	if r := first.Findings[1].Reason; !strings.HasPrefix(r, "it was deleted: messages") {
		t.Errorf("%q", r)
	}
	again := report()
	if s.Declared(again, time.Now()); !slices.Equal(first.Findings, again.Findings) {
		t.Errorf("the next check says something else: %v", again.Findings)
	}
}

// TestReplaced: each object that another client deletes, and declares again with other properties, is
// reported once with its kind and the depth before. A check that compares nothing else than before reports nothing.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for name, p := range watched(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, total := brokertest.URL(t), NewRedeclaredTotal(prometheus.NewRegistry())
			s, ch := session(t, url), channel(t, url)
			check := func(seen *Sightings) []Redeclared { return checked(t, s, p, seen) }
			counted := map[topology.Kind]float64{}
			must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t)
			atOnce, inFull := NewSightings(total, delaysNothing), NewSightings(total, delaysNothing)
			atOnce.Checked(p, nil, time.Now())
			ready := func(n int) { inFull.Measured([]Depth{{Queue: p.Queue, Kind: topology.KindMain, Ready: n}}, time.Now()) }
			for _, o := range ours(p) {
				if o.active == nil {
					continue
				}
				ready(7)
				if again := append(check(inFull), check(atOnce)...); len(again) > 0 {
					t.Errorf("nothing is new: %v", again)
				}
				replace(t, ch, &o)
				ready(0) // of the new one
				again := check(inFull)
				if len(again) != 1 || again[0].Object != o.title || again[0].Kind != kindOf(&o) {
					t.Fatalf("%s: %+v", o.title, again)
				}
				if d := again[0].LastDepth; o.name == p.Queue && (d == nil || *d != 7) {
					t.Errorf("%s: the depth before is not 7: %+v", o.title, again[0])
				}
				if again := append(check(inFull), check(atOnce)...); len(again) > 0 {
					t.Errorf("%s: reported again: %+v", o.title, again)
				}
				if again := check(NewSightings(total, delaysNothing)); len(again) > 0 {
					t.Errorf("%s: another process: %v", o.title, again)
				}
				kind := again[0].Kind
				counted[kind]++
				if n := testutil.ToFloat64(total.WithLabelValues(string(kind))); n != counted[kind] {
					t.Errorf("%s: %v of this kind are counted, want %v", o.title, n, counted[kind])
				}
			}
		})
	}
}

// replace declares an object again with another property, as another client does.
func replace(t *testing.T, ch *amqp.Channel, o *object) {
	t.Helper()
	o.delete(t, ch)
	if o.queue != nil {
		args := maps.Clone(o.queue.Args)
		if args == nil {
			args = amqp.Table{}
		}
		args["x-expires"] = int64(3_600_000)
		must.Get(ch.QueueDeclare(o.name, true, false, false, false, args))(t)
		return
	}
	kind := "headers"
	if o.properties[topology.PropertyType] == kind {
		kind = "direct"
	}
	must.Do(t, ch.ExchangeDeclare(o.name, kind, true, false, false, false, nil))
}
