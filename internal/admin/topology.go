package admin

// Topology is what the sidecar's exchanges and queues are, for a picture of them. It never changes.
type Topology struct {
	Preset  string `json:"preset"`
	Service string `json:"service"`
	Queue   string `json:"queue"` // the one that is consumed

	Exchanges []Exchange `json:"exchanges"`
	Queues    []Queue    `json:"queues"`
	Bindings  []Binding  `json:"bindings"`
	Waits     []Wait     `json:"waits"`             // the shortest first
	Park      *Route     `json:"park,omitempty"`    // absent: what is not tried again is discarded
	Redrive   *Route     `json:"redrive,omitempty"` // absent when Park is
}

// Exchange is an exchange; Type is empty for an exchange of another owner.
type Exchange struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Shared bool   `json:"shared"` // with other services
}

// Queue is a queue; Kind is main, retry or dlq.
type Queue struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Shared bool   `json:"shared"` // with other services
}

// Binding ties a queue to an exchange.
type Binding struct {
	Exchange string `json:"exchange"`
	Key      string `json:"key"`
	Queue    string `json:"queue"`
}

// Route is where to publish so that a message ends in Queue. An empty Exchange is the default exchange.
type Route struct {
	Exchange string `json:"exchange"`
	Key      string `json:"key"`
	Queue    string `json:"queue"`
}

// Wait is a queue that gives its messages back to the service's queue after Delay, a Go duration.
type Wait struct {
	Queue    string `json:"queue"`
	Delay    string `json:"delay"`
	Exchange string `json:"exchange"` // the step that leads into it
	Key      string `json:"key"`
}
