package topology

import (
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The presets.
const (
	PresetFanout      = "fanout"
	PresetTopicTiers  = "topic-tiers"
	PresetPerQueue    = "per-queue"
	PresetDelayLadder = "delay-ladder"
	PresetDeadLetter  = "dead-letter"
	PresetNative      = "native"
)

// Presets are the names of all presets.
var Presets = []string{
	PresetFanout, PresetTopicTiers, PresetPerQueue, PresetDelayLadder, PresetDeadLetter, PresetNative,
}

// Options says which topology to build. A preset fills only what is left at its zero value.
type Options struct {
	Preset  string // PresetFanout when empty
	Service string // the whole service name; required

	// Subscription is the name of one of several queues of the service; empty: there is one, without a name.
	Subscription string

	// Names. Each one can be set alone; those made from it follow (the prefix is in all of them).
	Prefix        string
	Exchange      string
	ExchangeType  string
	Queue         string
	RetryExchange string
	RetryQueue    string // with RetryDelays: what the tier queues' names start with
	DLX           string
	DLQ           string

	// Bindings replace the preset's own; Binding.Queue is ignored, the service's queue is meant. An exchange that is
	// not a main exchange has to exist: its type is its owner's.
	Bindings []Binding

	QueueType  string // "classic" or "quorum"; "auto" or empty: that of the service's queue, where it exists
	MaxRetries *int

	// QueueArguments are declared with the service's queue beside those of the preset. Integers are int64.
	QueueArguments amqp.Table

	RetryDelay time.Duration // one wait queue
	// RetryDelays are tiers, ascending, or of PresetNative the shortest delay and the longest. nil means the preset's own,
	// empty but not nil means no waiting at all.
	RetryDelays []time.Duration

	Attempt time.Duration // see Plan.Attempt

	SingleActive bool // see Plan.SingleActive

	// MessageTTL and NoDeadLetter belong to PresetDeadLetter.
	MessageTTL   time.Duration
	NoDeadLetter bool
}

// autoType reports whether the type of the queues is left to what exists.
func (o *Options) autoType() bool { return o.QueueType == "" || o.QueueType == TypeAuto }

// Values are what a preset can fill, of filled options, as the configuration writes it, by variable. The bindings are
// the plan's.
func (o *Options) Values() map[string]string {
	v := map[string]string{
		"{exchange-type}": o.ExchangeType, "{max-retries}": strconv.Itoa(*o.MaxRetries),
		"{retry-delay}": durations(o.RetryDelay), "{retry-delays}": durations(o.RetryDelays...),
	}
	for _, n := range o.settable(presets()[o.Preset]) {
		v[n.word] = *n.value
	}
	byVariable := map[string]string{}
	for word, value := range v {
		byVariable[settings[word].variable] = value
	}
	return byVariable
}

func durations(list ...time.Duration) string {
	var texts []string
	for _, d := range list {
		if d != 0 {
			texts = append(texts, d.String())
		}
	}
	return strings.Join(texts, ",")
}

// Mode says what Ensure may do.
type Mode string

// The modes.
const (
	ModeDeclare Mode = "declare" // create what is missing
	ModeVerify  Mode = "verify"  // check only
	ModeNone    Mode = "none"    // do not check
)
