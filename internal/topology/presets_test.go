package topology

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sidecar/internal/testkit/must"
)

// TestPresetsFollowTheirOptions: what is set changes what is made from it, and nothing else. TestPresetsToTheLetter has
// the types of queues, tiers and what there can be none of.
func TestPresetsFollowTheirOptions(t *testing.T) {
	t.Parallel()
	events := []Binding{{Exchange: "x.events", Key: "a.b"}}
	fanout := Options{Service: "wms-cincout"}
	tiers := Options{Preset: PresetTopicTiers, Service: "x-y"}
	ladder := Options{Preset: PresetDelayLadder, Service: "x-y", Bindings: events}
	perQueue := Options{Preset: PresetPerQueue, Service: "y", Bindings: []Binding{{Exchange: "domain.events", Key: "#"}}}
	deadLetter := Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Bindings: []Binding{{Exchange: "x", Key: "#"}}}
	native := Options{Preset: PresetNative, Service: "x-y"}
	limit := func(p *Plan) any { return p.OwnQueue().Args[ArgDeliveryLimit] }
	exchange := func(p *Plan, i int) string { return p.Exchanges[i].Name + " " + p.Exchanges[i].Type }
	queues := func(p *Plan) (names []string) {
		for _, q := range p.Queues {
			names = append(names, q.Name)
		}
		return names
	}
	for _, c := range []struct {
		name string
		o    Options
		set  func(*Options)
		look func(*Plan) any
		want any
	}{
		{"prefix", fanout, func(o *Options) { o.Prefix = "p" }, func(p *Plan) any { return p.Exchanges[0].Name + " " + p.Queue }, "p.main-exchange p.queue.wms-cincout"},
		{"exchange", fanout, func(o *Options) { o.Exchange = "x" }, func(p *Plan) any { return p.Exchanges[0].Name + p.Bindings[0].Exchange }, "xx"},
		{"exchange type", fanout, func(o *Options) { o.ExchangeType = "topic" }, func(p *Plan) any { return p.Exchanges[0].Type + p.Bindings[0].Key }, "topic#"},
		{"queue", fanout, func(o *Options) { o.Queue = "q" }, func(p *Plan) any {
			key, _ := p.queue("wms.retry-queue.wms-cincout").Args[ArgDLKey].(string)
			return p.Queue + p.Bindings[0].Queue + p.Redrive.Key + key
		}, "qqqq"},
		{"retry exchange", fanout, func(o *Options) { o.RetryExchange = "r" }, func(p *Plan) any {
			dlx, _ := p.queue(p.Queue).Args[ArgDLX].(string)
			return p.Exchanges[1].Name + dlx + p.Waits[0].Exchange
		}, "rrr"},
		{"retry queue", fanout, func(o *Options) { o.RetryQueue = "r" }, func(p *Plan) any { return p.Waits[0].Queue }, "r"},
		{"retry queue of tiers", fanout, func(o *Options) { o.RetryQueue, o.RetryDelays = "r", []time.Duration{time.Second} },
			func(p *Plan) any { return p.Waits[0].Queue }, "r.1s"},
		{"retry queue named like a placeholder", fanout, func(o *Options) {
			o.RetryQueue, o.RetryDelays = "{dlq}", []time.Duration{time.Second}
		}, func(p *Plan) any { return p.Waits[0].Queue }, "{dlq}.1s"},
		{"retry delay", fanout, func(o *Options) { o.RetryDelay = time.Minute }, func(p *Plan) any { return p.Waits[0].Tier() }, "1m"},
		{"dlq", fanout, func(o *Options) { o.DLQ = "d" }, func(p *Plan) any { return p.Park.Exchange + p.Park.Key + p.Park.Queue }, "dd"},
		{"bindings replace", fanout, func(o *Options) {
			o.Bindings = []Binding{{Exchange: "other", Key: "a.*"}, {Exchange: "other", Key: "b"}}
		},
			func(p *Plan) any {
				return p.Exchanges[0].Name + p.Exchanges[0].Type + " " + p.Bindings[0].Key + p.Bindings[1].Key + p.Exchanges[1].Name
			}, "other a.*bwms.retry-exchange.wms-cincout"},
		{"bindings to the main exchange", fanout, func(o *Options) {
			o.ExchangeType, o.Bindings = "direct", []Binding{{Exchange: "wms.main-exchange", Key: "k"}}
		}, func(p *Plan) any { return p.Exchanges[0].Name + p.Exchanges[0].Type }, "wms.main-exchangedirect"},
		{"no retries", fanout, func(o *Options) { o.MaxRetries = new(0) }, func(p *Plan) any { return strings.Repeat("x", p.MaxRetries) }, ""},

		{"the exchange names its retry and dead-letter exchanges", tiers, func(o *Options) { o.Exchange = "e" }, func(p *Plan) any {
			return exchange(p, 0) + " " + exchange(p, 1) + " " + exchange(p, 2) + " " + p.Park.Queue
		}, "e topic e.retry direct e.dlx fanout e.dlq"},
		{"without a hyphen", tiers, func(o *Options) { o.Service = "y" }, func(p *Plan) any { return p.Queue + " " + p.Bindings[0].Key }, "default.y y.*"},
		{"bindings that retries would not match get one more", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "x.events", Key: "y.created"}} },
			func(p *Plan) any { return p.Bindings[len(p.Bindings)-1] }, Binding{Exchange: "x.events", Key: "y.retry", Queue: "x.y"}},
		{"so do bindings to other exchanges", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "other", Key: "#"}} },
			func(p *Plan) any { return exchange(p, 0) + exchange(p, 3) }, "other x.events topic"},
		{"bindings that they match do not", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "x.events", Key: "#"}} },
			func(p *Plan) any { return len(p.Bindings) }, 5},
		{"retries follow the delays", tiers, func(o *Options) { o.RetryDelays = []time.Duration{time.Second} }, func(p *Plan) any { return p.MaxRetries }, 1},
		{"unless they are set", tiers, func(o *Options) { o.RetryDelays, o.MaxRetries = []time.Duration{time.Second}, new(7) },
			func(p *Plan) any { return p.MaxRetries }, 7},
		{"a dead-letter queue of its own", tiers, func(o *Options) { o.DLX, o.DLQ = "y.dlx", "y.dlq" }, func(p *Plan) any {
			dlx, _ := p.queue("x.y").Args[ArgDLX].(string)
			return dlx + " " + p.Park.Exchange + " " + p.Park.Queue
		}, "y.dlx y.dlx y.dlq"},

		{"two main exchanges", perQueue, func(o *Options) {
			o.Bindings = []Binding{{Exchange: "domain.events", Key: "a"}, {Exchange: "domain.commands", Key: "b"}, {Exchange: "other", Key: "c"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) + exchange(p, 2) }, "domain.events topicdomain.commands topicother "},
		{"one when it is named", perQueue, func(o *Options) {
			o.Exchange, o.Bindings = "e", []Binding{{Exchange: "e", Key: "a"}, {Exchange: "domain.commands", Key: "b"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) }, "e topicdomain.commands "},
		{"names made from the queue", perQueue, func(o *Options) { o.Queue = "z" }, func(p *Plan) any { return queues(p) }, []string{"z.dlq", "z.retry", "z"}},

		{"delays are named in seconds", ladder, func(o *Options) { o.RetryDelays = []time.Duration{1500 * time.Millisecond, 5 * time.Minute} },
			func(p *Plan) any { return p.Waits[0].Queue + " " + p.Waits[1].Queue }, "x.y.delay_1.5s x.y.delay_300s"},
		{"an exchange before the delays", ladder, func(o *Options) { o.RetryExchange, o.RetryQueue = "r", "w" },
			func(p *Plan) any { return p.Waits[0].Route }, Route{"r", "w_2s", "w_2s"}},
		{"an exchange before the dead-letter queue", ladder, func(o *Options) { o.DLX = "d" }, func(p *Plan) any {
			dlx, _ := p.queue("x.y").Args[ArgDLX].(string)
			key, _ := p.queue("x.y").Args[ArgDLKey].(string)
			return []any{dlx, key, p.Park}
		}, []any{"d", "x.y.dlq", Route{"d", "x.y.dlq", "x.y.dlq"}}},

		{"tiers without a plain retry queue", deadLetter, func(o *Options) { o.RetryDelays = []time.Duration{time.Second} },
			func(p *Plan) any { return queues(p) }, []string{"q.dlq", "q.retry.1s", "q"}},
		{"nothing kept, quorum", deadLetter, func(o *Options) { o.NoDeadLetter, o.QueueType = true, "quorum" },
			func(p *Plan) any { return p.queue("q").Args }, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2147483647)}},

		{"a limit for each retry", native, func(o *Options) { o.MaxRetries = new(3) }, limit, int64(60)},
		{"a limit without retries", native, func(o *Options) { o.MaxRetries = new(0) }, limit, int64(20)},
	} {
		t.Run(c.o.Preset+": "+c.name, func(t *testing.T) {
			o := c.o
			c.set(&o)
			if got := c.look(build(t, o)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestLongestDelays: no delay that can be set overflows.
func TestLongestDelays(t *testing.T) {
	t.Parallel()
	p := must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelay: maxTTL}))(t)
	if got := p.Delays(); !slices.Equal(got, []time.Duration{maxTTL}) || p.DelayAfter(1<<31-1) != maxTTL {
		t.Errorf("%v, %v", got, p.DelayAfter(1<<31-1))
	}
	p = must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelays: []time.Duration{4 * time.Hour, 24 * time.Hour}}))(t)
	if got := p.DelayAfter(1); got != 8*time.Hour {
		t.Errorf("%v", got)
	}
}

// build fails the test when the options are refused.
func build(t testing.TB, o Options) *Plan {
	t.Helper()
	return must.Get(Build(o))(t)
}

func TestNaming(t *testing.T) {
	t.Parallel()
	for service, queue := range map[string]string{
		"a-b-c": "a.queue.a-b-c", "noprefix": "default.queue.noprefix", "trailing-": "trailing.queue.trailing-", "v1.2_x": "default.queue.v1.2_x",
	} {
		if got := build(t, Options{Service: service}).Queue; got != queue {
			t.Errorf("%s consumes %s, want %s", service, got, queue)
		}
	}
}

func TestTierLabel(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		500 * time.Millisecond: "500ms", 1500 * time.Millisecond: "1.5s", 5 * time.Second: "5s", time.Minute: "1m",
		90 * time.Second: "1m30s", 30 * time.Minute: "30m", time.Hour: "1h", 10 * time.Hour: "10h",
		time.Hour + 5*time.Second: "1h0m5s", time.Hour + 10*time.Minute: "1h10m", 10*time.Hour + 5*time.Second: "10h0m5s", 20 * time.Second: "20s",
	} {
		if got := TierLabel(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

const schemaFile = "../../docs/plan.schema.json"

// TestPlanSchema keeps docs/plan.schema.json equal to the types; -update rewrites it. Every plan that the sidecar prints
// fits it, and files that ParsePlan refuses for their form do not.
func TestPlanSchema(t *testing.T) {
	t.Parallel()
	root := schemaOf(reflect.TypeFor[planFile](), comments(t))
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "Plan for SIDECAR_PLAN_FILE"
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	must.Do(t, e.Encode(root))
	if *update {
		must.Do(t, os.WriteFile(schemaFile, text.Bytes(), 0o644))
	}
	if string(must.Get(os.ReadFile(schemaFile))(t)) != text.String() {
		t.Errorf("%s is stale: go test ./internal/topology -run TestPlanSchema -update", schemaFile)
	}

	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("plan", must.Get(jsonschema.UnmarshalJSON(&text))(t)))
	schema := must.Get(c.Compile("plan"))(t)
	fits := func(file []byte) error {
		return schema.Validate(must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(file)))(t))
	}
	for name, p := range everyPlan(t) {
		if err := fits(must.Get(p.JSON())(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range must.Get(filepath.Glob("../../examples/topologies/*/*.json"))(t) {
		if err := fits(must.Get(os.ReadFile(file))(t)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, name := range []string{
		"argument-types", "delay-without-unit", "delays", "empty-object", "fractions", "missing-fields", "missing-lists", "negative-retries",
		"root-is-a-list", "too-many-retries", "unknown-field-of-odd-name", "unknown-fields", "without-park", "words", "wrong-types",
	} {
		if fits(must.Get(os.ReadFile("testdata/brokenplans/"+name+".json"))(t)) == nil {
			t.Errorf("%s: fits", name)
		}
	}
}

// schemaOf is the schema of what strictDecoder reads into a type. The comments are those of the fields, by "Type.Field".
func schemaOf(t reflect.Type, comments map[string]string) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem(), comments)
		s["type"] = []string{"object", "null"}
		return s
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), comments)}
	case reflect.Map:
		values := map[string]any{"type": []string{"string", "integer", "boolean"}}
		return map[string]any{"type": "object", "additionalProperties": values}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": maxRetriesLimit}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int64:
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(h|m|s|ms|us|µs|ns))+$`}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t) {
		s := schemaOf(f.Type, comments)
		if f.words != nil {
			s["enum"] = f.words
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		s["description"] = comments[owner.Name()+"."+f.Name]
		if properties[f.name] = s; f.required {
			required = append(required, f.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// comments maps "Type.Field" to the comment above the field, on one line, for the structs of a plan's file.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{"plan.go", "planfile.go"} {
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))(t)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						all[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return all
}
