package admin

import (
	"time"

	"sidecar/internal/flow"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// State is what the sidecar reports about itself, and the commands it takes. Every method returns at once. A
// subscription is named by one of Subscriptions; "" means all.
type State interface {
	Subscriptions() []string // none when there is one, without a name
	Ready(subscription string) Readiness
	Status() Status
	Flow() Flow                 // asked for about once a second while a client reads /events, and not twice at a time
	Drain()                     // begins a drain; later calls change nothing
	Draining() <-chan struct{}  // closed when a drain has begun, by a signal or a request
	Drained() <-chan struct{}   // closed when it has ended, in the grace or not
	Pause(subscription string)  // takes no more messages until Resume
	Resume(subscription string) // ends Pause, and no other reason to pause
}

// Readiness says whether messages are consumed, or are not on purpose.
type Readiness struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Check is one condition of readiness, of a subscription that has a name or of the sidecar. Detail is shown to any
// client that reaches the admin port: no secrets.
type Check struct {
	Name         string `json:"name"`
	Subscription string `json:"subscription,omitempty"`

	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// CheckBroker is the check that has an endpoint of its own: the connection that consumes is up.
const CheckBroker = "broker"

// The values of Status.State.
const (
	Starting   = "starting"
	Consuming  = "consuming"
	Publishing = "publishing" // and it does not consume, because it is not to
	Paused     = "paused"
	Draining   = "draining"
	Drained    = "drained"
)

// Status is everything an operator asks first.
type Status struct {
	Consumption // of all queues

	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"`
	Started time.Time `json:"started"`
	Service string    `json:"service"`

	Consume *Connection `json:"consume,omitempty"` // nil where nothing is consumed
	Publish Connection  `json:"publish"`
	Blocked *Blocked    `json:"blocked,omitempty"` // nil: no connection has been notified of an alarm

	Subscriptions []Subscription `json:"subscriptions,omitempty"` // those that have names
}

// Subscription is the status of one subscription that has a name.
type Subscription struct {
	Name string `json:"name"`
	Consumption
}

// Consumption is what is consumed, and how. Of several queues it has sums, and all reasons, bindings and URLs; retries
// are those of the first.
type Consumption struct {
	State string `json:"state"` // one of the constants above

	*Consumed // nil where nothing is consumed, which the JSON shows by leaving all of it out

	Pauses   []Pause   `json:"pauses"`   // why nothing is taken; empty when messages are
	Findings []Finding `json:"findings"` // what is wrong with the topology
	Warnings []string  `json:"warnings"` // what people should know although it works

	Problems   []string     `json:"problems,omitempty"`   // what fails now although messages are consumed
	Redeclared []Redeclared `json:"redeclared,omitempty"` // objects that were deleted within the last hour
}

// Consumed is the queues and the app of what is consumed.
type Consumed struct {
	Queue    string `json:"queue"`    // of several: their names, separated by commas
	Topology string `json:"topology"` // the preset's name; of several: each once, separated by commas

	Bindings []topology.Binding `json:"bindings,omitempty"` // by which messages come to the queues

	App App `json:"app"`

	Inflight    int  `json:"inflight"`          // messages the app has now
	Delayed     int  `json:"delayed"`           // messages delayed here before their requeue
	Waiting     *int `json:"waiting,omitempty"` // rejected here, and delayed in their queue; nil where that delays none
	Concurrency int  `json:"concurrency"`       // messages the app can have at once
	Prefetch    int  `json:"prefetch"`

	MaxRetries  int      `json:"max_retries"`
	RetryDelays []string `json:"retry_delays"` // Go durations
}

// Of names what a pause or a finding belongs to.
type Of struct {
	Subscription string `json:"subscription,omitempty"`
	Queue        string `json:"queue"`
}

// Pause is one reason why nothing is taken.
type Pause struct {
	Of
	flow.Hold
}

// Finding is one thing in the topology that would lose a message.
type Finding struct {
	Of
	declare.Finding
}

// Redeclared is an object that was deleted and declared again.
type Redeclared struct {
	Of
	declare.Redeclared
}

// Connection is one of the two connections to the broker.
type Connection struct {
	Connected bool   `json:"connected"`
	Blocked   bool   `json:"blocked,omitempty"` // the broker has an alarm and takes no publishes
	Error     string `json:"error,omitempty"`   // why it is not connected, in the broker's words where it gave any
}

// Blocked is a resource alarm of the broker: it takes no publishes.
type Blocked struct {
	Since  time.Time `json:"since"`            // of the first notification
	Reason string    `json:"reason,omitempty"` // in the broker's words
}

// App is the app beside the sidecar.
type App struct {
	Up  bool   `json:"up"`  // of several: all are
	URL string `json:"url"` // without user and query; of several: each once, separated by commas
}

// Flow counts the outcomes of messages since the start, and those that wait.
type Flow struct {
	Totals `json:"totals"`

	Depths []declare.Depth `json:"depths"` // as of the last check, not nil; empty while the broker is disconnected
}

// Totals only grow.
type Totals struct {
	Received uint64            `json:"received"`
	Settled  map[string]uint64 `json:"settled"` // by outcome: ack, retry, requeue, park, discard, release
}

// Topology is what the exchanges and queues of a subscription are, for a picture of them. It never changes.
type Topology struct {
	Subscription string `json:"subscription,omitempty"`

	Preset  string `json:"preset"`
	Service string `json:"service"`
	Queue   string `json:"queue"` // the one that is consumed

	Exchanges []topology.Exchange `json:"exchanges"`
	Queues    []topology.Queue    `json:"queues"`
	Bindings  []topology.Binding  `json:"bindings"`
	Waits     []Wait              `json:"waits"`            // the shortest first
	Park      topology.Route      `json:"park,omitzero"`    // zero: what is not tried again is discarded
	Redrive   topology.Route      `json:"redrive,omitzero"` // zero when Park is
}

// Wait is a queue that gives its messages back to the service's queue after Delay, a Go duration; the Route leads into
// it.
type Wait struct {
	topology.Route

	Delay string `json:"delay"`
}
