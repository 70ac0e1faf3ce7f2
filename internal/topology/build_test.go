package topology

import (
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

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

// TestOverridesFillOverThePreset sets every name alone and checks what follows it.
func TestOverridesFillOverThePreset(t *testing.T) {
	t.Parallel()
	base := Options{Service: "wms-cincout"}
	for _, c := range []struct {
		name string
		set  func(*Options)
		look func(*Plan) string
		want string
	}{
		{"prefix", func(o *Options) { o.Prefix = "p" }, func(p *Plan) string { return p.Exchanges[0].Name + " " + p.Queue }, "p.main-exchange p.queue.wms-cincout"},
		{"exchange", func(o *Options) { o.Exchange = "x" }, func(p *Plan) string { return p.Exchanges[0].Name + p.Bindings[0].Exchange }, "xx"},
		{"exchange type", func(o *Options) { o.ExchangeType = "topic" }, func(p *Plan) string { return p.Exchanges[0].Type + p.Bindings[0].Key }, "topic#"},
		{"queue", func(o *Options) { o.Queue = "q" }, func(p *Plan) string {
			key, _ := p.queue("wms.retry-queue.wms-cincout").Args[ArgDLKey].(string)
			return p.Queue + p.Bindings[0].Queue + p.Redrive.Key + key
		}, "qqqq"},
		{"retry exchange", func(o *Options) { o.RetryExchange = "r" }, func(p *Plan) string {
			dlx, _ := p.queue(p.Queue).Args[ArgDLX].(string)
			return p.Exchanges[1].Name + dlx + p.Waits[0].Exchange
		}, "rrr"},
		{"retry queue", func(o *Options) { o.RetryQueue = "r" }, func(p *Plan) string { return p.Waits[0].Queue }, "r"},
		{"retry queue of tiers", func(o *Options) { o.RetryQueue, o.RetryDelays = "r", []time.Duration{time.Second} },
			func(p *Plan) string { return p.Waits[0].Queue }, "r.1s"},
		{"retry queue named like a placeholder", func(o *Options) {
			o.RetryQueue, o.RetryDelays = "{dlq}", []time.Duration{time.Second}
		}, func(p *Plan) string { return p.Waits[0].Queue }, "{dlq}.1s"},
		{"retry delay", func(o *Options) { o.RetryDelay = time.Minute }, func(p *Plan) string { return p.Waits[0].Tier() }, "1m"},
		{"dlq", func(o *Options) { o.DLQ = "d" }, func(p *Plan) string { return p.Park.Exchange + p.Park.Key + p.Park.Queue }, "dd"},
		{"bindings replace", func(o *Options) {
			o.Bindings = []Binding{{Exchange: "other", Key: "a.*"}, {Exchange: "other", Key: "b"}}
		},
			func(p *Plan) string {
				return p.Exchanges[0].Name + p.Exchanges[0].Type + " " + p.Bindings[0].Key + p.Bindings[1].Key + p.Exchanges[1].Name
			}, "other a.*bwms.retry-exchange.wms-cincout"},
		{"bindings to the main exchange", func(o *Options) {
			o.ExchangeType, o.Bindings = "direct", []Binding{{Exchange: "wms.main-exchange", Key: "k"}}
		}, func(p *Plan) string { return p.Exchanges[0].Name + p.Exchanges[0].Type }, "wms.main-exchangedirect"},
		{"no retries", func(o *Options) { o.MaxRetries = new(0) }, func(p *Plan) string { return strings.Repeat("x", p.MaxRetries) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			c.set(&o)
			if got := c.look(build(t, o)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
