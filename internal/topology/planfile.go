package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// planFile is a plan as JSON: what `sidecar plan --format json` prints and SIDECAR_PLAN_FILE reads. Its schema,
// docs/plan.schema.json, is generated from it and from Plan: a field without omitempty is required, and the comments of
// the fields are descriptions.
type planFile struct {
	// Where the schema of this file is. Editors use it, the sidecar does not.
	Schema string `json:"$schema,omitempty"`

	Plan

	// Where messages wait before a retry, the shortest delay first. An empty list: no retries.
	Waits []planWait `json:"waits"`

	// Where messages are published that are not retried any more. null: they are discarded.
	Park *Route `json:"park"`

	// Where messages from the dead-letter queue are published to be tried again. Absent: the service's queue itself.
	Redrive *Route `json:"redrive,omitempty"`
}

// planWait is a WaitPath as JSON.
type planWait struct {
	// How long the message waits, such as 500ms, 30s or 1h30m. The queue's x-message-ttl is the same in milliseconds, or
	// x-delayed-retry-min where the service's queue delays the message itself.
	Delay planDelay `json:"delay"`

	WaitPath
}

// planDelay is a duration that JSON writes as text.
type planDelay time.Duration

// MarshalText writes the duration the short way.
func (d planDelay) MarshalText() ([]byte, error) { return []byte(TierLabel(time.Duration(d))), nil }

// JSON returns the plan as a file that ParsePlan reads.
func (p *Plan) JSON() ([]byte, error) {
	f := planFile{Plan: *p, Waits: []planWait{}, Redrive: &p.Redrive}
	for _, w := range p.Waits {
		f.Waits = append(f.Waits, planWait{planDelay(w.Delay), w})
	}
	if p.Park != (Route{}) {
		f.Park = &p.Park
	}
	return p.encode(f)
}

// encode writes a form of p as JSON for people.
func (p *Plan) encode(form any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(form); err != nil {
		return nil, fmt.Errorf("write the plan of %s: %w", p.Service, err)
	}
	return b.Bytes(), nil
}

// maxObjects bounds each list of a plan file, and with it the time that checking the plan takes.
const maxObjects = 1000

// ParsePlan reads a plan for a service, see Plan.Attempt, from JSON. The error joins all problems, each with its JSON
// path: what cannot be read and what Validate refuses in the rest. A problem that may follow from another one is
// omitted.
func ParsePlan(raw []byte, service string, attempt time.Duration) (*Plan, error) {
	var f planFile
	d, err := decodeStrict(raw, &f)
	if err != nil {
		return nil, err
	}
	if most := max(len(f.Exchanges), len(f.Queues), len(f.Bindings), len(f.Waits)); most > maxObjects {
		return nil, fmt.Errorf("$: a list has %d entries and may have %d", most, maxObjects)
	}
	p := f.plan(service)
	p.Attempt = attempt
	problems := d.problems
	for _, found := range p.problems(d.unread) {
		problems = append(problems, found)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return p, nil
}

// DemandSingleActive sets SingleActive of a plan that was just read, or returns why it cannot be.
func (p *Plan) DemandSingleActive() error {
	if p.SingleActive = true; p.OwnQueue().Args[ArgSingleConsumer] == true {
		return nil
	}
	return errors.New(p.Say(fmt.Sprintf("$.queues: queue %q: {order-by} needs %s=true; {order-scope}=replica does not, "+
		"and keeps order within each replica only", p.Queue, ArgSingleConsumer)))
}

func (f *planFile) plan(service string) *Plan {
	p := &f.Plan
	p.Service, p.FromFile, p.Redrive = service, true, Route{Key: f.Queue, Queue: f.Queue}
	for _, w := range f.Waits {
		w.WaitPath.Delay = time.Duration(w.Delay)
		p.Waits = append(p.Waits, w.WaitPath)
	}
	if f.Park != nil {
		p.Park = *f.Park
	}
	if f.Redrive != nil {
		p.Redrive = *f.Redrive
	}
	if own := p.OwnQueue(); own != nil {
		p.Quorum = own.Args[ArgType] == TypeQuorum
		p.RequeueLimit = p.requeueLimit(own.Properties(), 0)
	}
	return p
}
