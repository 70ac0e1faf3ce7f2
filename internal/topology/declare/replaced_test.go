package declare

import (
	"maps"
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

// TestReplaced: each object that another client deletes, and declares again with other properties, is
// reported once with its kind and the depth before. A check that compares nothing else than before reports nothing.
func TestReplaced(t *testing.T) {
	t.Parallel()
	all := variants(t)
	for _, name := range []string{"per-queue", "quorum tiers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url := all[name], brokertest.URL(t)
			s, ch := session(t, url), channel(t, url)
			total := NewRedeclaredTotal(prometheus.NewRegistry())
			counted := map[topology.Kind]float64{}
			check := func(seen *Sightings) []Redeclared {
				t.Helper()
				return checked(t, s, p, seen, func() {})
			}
			if !EnsureAtOnce(t.Context(), s, p, topology.ModeDeclare) {
				must.Get(Ensure(t.Context(), s, p, topology.ModeDeclare))(t)
			}
			atOnce, inFull := NewSightings(total, delaysNothing), NewSightings(total, delaysNothing)
			atOnce.Checked(p, nil, time.Now())
			ready := func(n int) { inFull.measured([]Depth{{Queue: p.Queue, Kind: topology.KindMain, Ready: n}}, time.Now()) }
			for _, o := range objects(p) {
				if strings.HasPrefix(o.name, "amq.") || o.active == nil {
					continue
				}
				ready(7)
				if again := append(check(inFull), check(atOnce)...); len(again) > 0 {
					t.Errorf("nothing is new: %v", again)
				}
				replace(t, ch, &o)
				ready(0) // of the new one
				again := check(inFull)
				if len(again) != 1 || again[0].Object != o.title || o.queue == nil && again[0].Kind != KindExchange ||
					o.queue != nil && again[0].Kind != o.queue.Kind {
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
	if o.queue != nil {
		must.Get(ch.QueueDelete(o.name, false, false, false))(t)
		args := maps.Clone(o.queue.Args)
		if args == nil {
			args = amqp.Table{}
		}
		args["x-expires"] = int64(3_600_000)
		must.Get(ch.QueueDeclare(o.name, true, false, false, false, args))(t)
		return
	}
	must.Do(t, ch.ExchangeDelete(o.name, false, false))
	kind := "headers"
	if o.properties[topology.PropertyType] == kind {
		kind = "direct"
	}
	must.Do(t, ch.ExchangeDeclare(o.name, kind, true, false, false, false, nil))
}
