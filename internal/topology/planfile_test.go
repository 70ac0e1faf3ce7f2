package topology

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// everyPlan are plans of every preset in every variant: both types of queue, one delay, several and none, with a TTL
// and without a dead-letter queue.
func everyPlan(t *testing.T) map[string]*Plan {
	plans := goldens(t)
	maps.Copy(plans, otherShapes(t))
	for preset := range shown {
		types, delays := []string{TypeClassic, TypeQuorum}, []time.Duration{time.Millisecond, 300 * time.Second, 90 * time.Minute}
		if preset == PresetNative {
			types, delays = types[1:], delays[1:]
		}
		for _, queueType := range types {
			plans[preset+" "+queueType+" with seconds"] = show(t, preset, func(o *Options) { o.QueueType, o.RetryDelays = queueType, delays })
			plans[preset+" "+queueType+" without retries"] = show(t, preset, func(o *Options) {
				o.QueueType, o.MaxRetries = queueType, new(0)
			})
		}
	}
	return plans
}

// TestPlanFileRoundTrip: a plan that was printed and read again is the same plan.
func TestPlanFileRoundTrip(t *testing.T) {
	t.Parallel()
	for name, p := range everyPlan(t) {
		file := must.Get(p.JSON())(t)
		read, err := ParsePlan(file, p.Service, 0)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, file)
			continue
		}
		again := must.Get(read.JSON())(t)
		want := *p
		want.FromFile, want.AutoType, want.notes = true, false, nil // a file says each type; notes are about variables
		if !reflect.DeepEqual(*read, want) || string(again) != string(file) {
			t.Errorf("%s: read %+v\nwant %+v\n%s", name, *read, want, file)
		}
		if read.Text() != p.Text() || Mermaid(read) != Mermaid(p) {
			t.Errorf("%s: drawn otherwise:\n%s", name, read.Text())
		}
		if got := must.Get(read.Definitions("/"))(t); string(got) != string(must.Get(p.Definitions("/"))(t)) {
			t.Errorf("%s: other definitions:\n%s", name, got)
		}
		for _, mode := range []Mode{ModeDeclare, ModeVerify, ModeNone} {
			if read.Permissions(mode) != p.Permissions(mode) {
				t.Errorf("%s: other permissions in mode %s", name, mode)
			}
		}
	}
}

// TestPlanFileTypes: RabbitMQ distinguishes integers, texts and booleans.
func TestPlanFileTypes(t *testing.T) {
	t.Parallel()
	file := strings.Replace(smallPlan, `"bindings": []`, `"bindings": [{"exchange": "h", "queue": "q", "arguments": {
		"x-match": "any", "text": "1", "number": 1, "low": -9223372036854775808, "yes": true, "no": false, "empty": ""}}]`, 1)
	file = strings.Replace(file, `"exchanges": []`, `"exchanges": [{"name": "h", "type": "headers"}]`, 1)
	p := must.Get(ParsePlan([]byte(file), "s", 0))(t)
	want := amqp.Table{"x-match": "any", "text": "1", "number": int64(1), "low": int64(-1 << 63), "yes": true, "no": false, "empty": ""}
	if !reflect.DeepEqual(p.Bindings[0].Args, want) {
		t.Errorf("read %#v", p.Bindings[0].Args)
	}
	if q := p.queue("q"); q.Args != nil {
		t.Errorf("no arguments became %#v", q.Args)
	}
	if p.Redrive != (Route{Key: "q", Queue: "q"}) || p.Park != (Route{}) || !p.FromFile || p.Service != "s" {
		t.Errorf("read %+v", p)
	}
}

// TestPlanFileDeliveryLimit: a queue that a file declares with a delivery limit, or with the broker's own, is treated as
// one that was found with it, from the first message on.
func TestPlanFileDeliveryLimit(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]int{
		`{}`: 0, `{"x-queue-type": "quorum", "x-delivery-limit": 2147483647}`: 0,
		`{"x-queue-type": "quorum"}`: cautiousRequeues, `{"x-queue-type": "quorum", "x-delivery-limit": 12}`: 6,
	} {
		file := strings.Replace(smallPlan, `"arguments": {}`, `"arguments": `+arguments, 1)
		if p := must.Get(ParsePlan([]byte(file), "s", 0))(t); p.RequeueLimit != want {
			t.Errorf("%s: %d requeues, want %d", arguments, p.RequeueLimit, want)
		}
	}
}

// smallPlan is the smallest plan: a queue whose failed messages are discarded.
const smallPlan = `{
	"exchanges": [],
	"queues": [{"name": "q", "kind": "main", "arguments": {}}],
	"bindings": [],
	"queue": "q",
	"waits": [],
	"park": null,
	"redrive": null,
	"max_retries": 0
}`

// TestBrokenPlans: testdata/brokenplans holds plan files and, beside each, every line of its error.
func TestBrokenPlans(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("testdata/brokenplans/*.json"))(t)
	if len(files) < 30 {
		t.Errorf("%d broken plans", len(files))
	}
	for _, file := range files {
		p, err := ParsePlan(must.Get(os.ReadFile(file))(t), "shop-orders", 0)
		if err == nil || p != nil {
			t.Errorf("%s: accepted", file)
			continue
		}
		golden(t, filepath.Join("brokenplans", strings.TrimSuffix(filepath.Base(file), ".json")+".errors"), err.Error()+"\n")
	}
}

func TestPlanThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := &Plan{Service: "wms-cincout", Queues: []Queue{{Args: amqp.Table{"x": make(chan int)}}}}
	for name, write := range map[string]func() ([]byte, error){"file": p.JSON, "definitions": func() ([]byte, error) { return p.Definitions("/") }} {
		if b, err := write(); err == nil || b != nil || !strings.Contains(err.Error(), "wms-cincout") {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

// FuzzParsePlan: whatever the file holds, there is a plan that survives another round trip or an error with a place.
func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(smallPlan))
	f.Add([]byte(`{"queues":[{"name":1.5,"arguments":{"a":[],"a":{}}}],"park":{}`))
	for _, o := range shown {
		file, _ := build(f, o).JSON()
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePlan(raw, "s", 0)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "$") && !strings.HasPrefix(line, "line ") {
					t.Fatalf("%q does not say where", line)
				}
			}
			return
		}
		again := must.Get(ParsePlan(must.Get(p.JSON())(t), "s", 0))(t)
		if !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v\n%+v", p, again)
		}
	})
}

// TestPlanFileIsBounded: a list that no service needs would take long to check.
func TestPlanFileIsBounded(t *testing.T) {
	t.Parallel()
	raw := `{"queues": [` + strings.Repeat("{},", maxObjects) + `{}]}`
	if _, err := ParsePlan([]byte(raw), "s", 0); err == nil || err.Error() != "$: a list has 1001 entries and may have 1000" {
		t.Errorf("%.200v", err)
	}
}

// TestFixOfAPlanFile: no variable changes a plan from a file.
func TestFixOfAPlanFile(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-in", QueueType: TypeQuorum})
	p.FromFile = true
	for name, change := range map[string]amqp.Table{
		p.Queue: {argExpires: int64(9), ArgType: TypeClassic}, "wms.dlq.wms-in": {ArgType: TypeClassic}, "wms.main-exchange": {PropertyType: "topic"},
	} {
		_, all := p.AsFound(asFound(p, name, change))
		for _, d := range all {
			if d.Judgement != Harmless && (d.Fix == "" || strings.Contains(d.Fix, "SIDECAR_") || strings.Contains(d.Fix, "{")) {
				t.Errorf("%s: %s: %q", name, d.Property, d.Fix)
			}
		}
	}
}
