package topology

import (
	"embed"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed presets/*.json
var presetFiles embed.FS

// preset is what a file of presets has: a plan with placeholders, and the values of options that are not set.
//
// {service} and {rest} are the service's name and the part after its first hyphen; {prefix}, {exchange},
// {exchange-type}, {queue}, {retry-exchange}, {retry-queue}, {dlx} and {dlq} are the values of these options. With
// subscriptions {rest} and {name} are the subscription's name, and {scope} is behind the service's; without, {name} and
// {scope} are the service's name, and {named} is empty. Of a number {delay} is the delay in milliseconds, {longest} the
// longest one and {limit} the delivery limit of a queue that delays messages itself.
//
// What has {tier} or {seconds} in its name is there once for each of several delays. What has no name is left out, with
// its bindings; without an exchange a route leads to its queue directly.
type preset struct {
	// Names by their words; one that is absent is empty unless the option is set. A queue without a name has to be named.
	Names map[string]string `json:"names"`

	ExchangeType string `json:"exchange_type"`
	QueueType    string `json:"queue_type,omitempty"`

	RetryDelay  planDelay   `json:"retry_delay,omitempty"`  // one retry queue, unless tiers are asked for
	RetryDelays []planDelay `json:"retry_delays,omitempty"` // tiers
	MaxRetries  int         `json:"max_retries,omitempty"`  // 0: one for every delay

	MayDiscard  bool `json:"may_discard,omitempty"`   // MessageTTL and NoDeadLetter have a meaning
	MayNotRetry bool `json:"may_not_retry,omitempty"` // a list of delays may be empty

	Plan presetPlan `json:"plan"`
}

type presetPlan struct {
	// Those of type {exchange-type} are the main exchanges, which producers publish to.
	Exchanges []Exchange `json:"exchanges"`
	Queues    []Queue    `json:"queues"`

	// The first one feeds the service's queue. Without a key the bindings have to be given.
	Bindings []Binding `json:"bindings"`

	Waits       []presetWait `json:"waits"`
	Park        Route        `json:"park"`
	Redrive     *Route       `json:"redrive,omitempty"`
	StampQueue  bool         `json:"stamp_queue,omitempty"`
	CountHeader string       `json:"count_header,omitempty"`
}

type presetWait struct {
	Delay string `json:"delay"`
	WaitPath
}

// presets returns all presets by their names. Code that builds, validates, settles or prints a plan has no branch for
// one of them.
var presets = sync.OnceValue(func() map[string]*preset {
	all := map[string]*preset{}
	files, _ := presetFiles.ReadDir("presets")
	for _, f := range files {
		raw, _ := presetFiles.ReadFile(path.Join("presets", f.Name()))
		p := new(preset)
		_, _ = decodeStrict(raw, p) // TestPresetFiles has every problem
		all[strings.TrimSuffix(f.Name(), ".json")] = p
	}
	return all
})

// delaysItself reports whether the service's queue delays messages, see ByDelay.
func (p *preset) delaysItself() bool { return p.Plan.Waits[0].By == ByDelay }

// tiered reports whether an object of that name is there once for each of several delays.
func tiered(template string) bool {
	return strings.Contains(template, "{tier}") || strings.Contains(template, "{seconds}")
}

// secondsLabel writes a delay as delay ladders are named: 300s, not 5m. A delay that is not a whole number of seconds
// is written as usual.
func secondsLabel(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	return TierLabel(d)
}

// fill fills a name of a preset for a delay.
func (b *builder) fill(template string, d time.Duration) string {
	name := b.values.Replace(b.o.scope().Replace(template))
	if tiered(template) {
		name = placeholders{"{tier}": TierLabel(d), "{seconds}": secondsLabel(d)}.Replace(name)
	}
	return name
}

// argument is the value of an argument of a preset for a delay.
func (b *builder) argument(v any, d time.Duration) any {
	switch v {
	case "{delay}":
		return d.Milliseconds()
	case "{longest}":
		return slices.Max(append(b.o.RetryDelays, d)).Milliseconds()
	case "{limit}":
		return ownLimit(*b.o.MaxRetries)
	}
	if text, ok := v.(string); ok {
		return b.fill(text, d)
	}
	return v
}
