package topologytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// lot takes everything out of a dead-letter queue and keeps it by message id, so that tests can share the queue.
type lot struct {
	mu     sync.Mutex
	byID   map[string][]amqp.Delivery
	wanted map[string]int // how many of each a test has asked for
}

func collect(t testing.TB, url, queue string) *lot {
	t.Helper()
	l := &lot{byID: map[string][]amqp.Delivery{}, wanted: map[string]int{}}
	deliveries := must.Get(brokertest.Channel(t, url).Consume(queue, "", false, false, false, false, nil))(t)
	go func() { // ends with the channel, at the end of the test
		for d := range deliveries {
			l.mu.Lock()
			l.byID[d.MessageId] = append(l.byID[d.MessageId], d)
			l.mu.Unlock()
			_ = d.Ack(false)
		}
	}()
	return l
}

// await waits for the message to be parked for the n-th time and returns the last one.
func (l *lot) await(t testing.TB, id string, n int) amqp.Delivery {
	t.Helper()
	l.mu.Lock()
	l.wanted[id] = n
	l.mu.Unlock()
	var d amqp.Delivery
	brokertest.Eventually(t, patience, fmt.Sprintf("%s is parked %d times", id, n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.byID[id]) < n {
			return false
		}
		d = l.byID[id][len(l.byID[id])-1]
		return true
	})
	return d
}

// surplus lists what is in the lot more often, or less often, than a test has asked for.
func (l *lot) surplus() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for id, ds := range l.byID {
		if len(ds) != l.wanted[id] {
			list = append(list, fmt.Sprintf("%s: %d, want %d", id, len(ds), l.wanted[id]))
		}
	}
	return list
}

// settled is a line of the sidecar's log about a message that was settled.
type settled struct {
	ID      string `json:"message_id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// journal is the log, which has the outcome of each message. It is read while it is written: tests ask it all the
// time.
type journal struct {
	log  apptest.Log
	mu   sync.Mutex
	ends map[string][]settled // by message id
}

// Write takes one line: slog writes each record in one go.
func (j *journal) Write(line []byte) (int, error) {
	var s settled
	final := json.Unmarshal(line, &s) == nil && (s.Outcome == "ack" || s.Outcome == "park" || s.Outcome == "discard")
	if final && s.ID != "" {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.ends == nil {
			j.ends = map[string][]settled{}
		}
		j.ends[s.ID] = append(j.ends[s.ID], s)
	}
	return j.log.Write(line)
}

func (j *journal) String() string { // the end of it
	lines := j.log.Lines()
	return strings.Join(lines[max(0, len(lines)-200):], "")
}

// finals lists how the message ended: once, unless it was moved back.
func (j *journal) finals(id string) []settled {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ends[id]
}

// Arguments that name other objects.
const (
	argDLX   = "x-dead-letter-exchange"
	argDLKey = "x-dead-letter-routing-key"
)

// foreignRetries: a retry that returns through an exchange reaches every queue that is bound to it. A sidecar that it
// is not meant for acks it without asking its app, which has had the message already.
func foreignRetries(t *testing.T, plan *topology.Plan) {
	r, everything := begin(t, plan), begin(t, listener(t, plan))
	ids := named("theirs", 2)
	for _, id := range ids {
		r.app.On(id, failing())
	}
	r.send(t, ids...)
	for _, id := range ids {
		r.ends(t, id, 1, "park", "max_retries")
		r.receipts(t, id, counting(plan.MaxRetries)...)
		brokertest.Eventually(t, patience, "the other service settles all of "+id, func() bool {
			return len(everything.log.finals(id)) > plan.MaxRetries
		})
		ends := map[string]int{} // in any order: the first retry may return before the answer to the message itself
		for _, s := range everything.log.finals(id) {
			ends[s.Outcome+" "+s.Reason]++
		}
		if want := map[string]int{"ack success": 1, "ack foreign_retry": plan.MaxRetries}; !maps.Equal(ends, want) {
			t.Errorf("%s was settled by the other service as %v, want %v", id, ends, want)
		}
		everything.receipts(t, id, 0)
	}
	// A message published to the queue by its name is meant for it, whatever the stamp says.
	m := message("by-name")
	m.Headers = amqp.Table{topology.HeaderRetryQueue: plan.Queue}
	everything.put(t, m)
	everything.acked(t, m.MessageId)
	everything.stopsEmpty(t)
}

// listener is a service beside the plan's that listens to all that returns.
func listener(t *testing.T, plan *topology.Plan) *topology.Plan {
	t.Helper()
	for _, q := range plan.Queues {
		back, _ := q.Args[argDLX].(string)
		if q.Kind != topology.KindRetry || back == "" {
			continue
		}
		for _, x := range plan.Exchanges {
			if x.Name != back {
				continue
			}
			name := plan.Queue + ".other"
			return &topology.Plan{
				Preset: plan.Preset, Service: "other", Queue: name, StampQueue: true,
				Exchanges: []topology.Exchange{x}, Queues: []topology.Queue{{Name: name, Kind: topology.KindMain}},
				Bindings: []topology.Binding{{Exchange: x.Name, Key: "#", Queue: name}},
			}
		}
	}
	t.Fatal("no retry of the plan returns through an exchange of its own")
	return nil
}

// patience is how long a test waits for what has to happen. Nothing is asserted about it: a slow machine is no fault.
const patience = 90 * time.Second

// consumes waits until the sidecar consumes.
func (r *rig) consumes(t testing.TB) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
}

func status(code int, headers ...string) apptest.Reply {
	return apptest.Say(apptest.Status(code, headers...))
}

// failing says no below 500: the breaker would pause the sidecar for an app that has nothing but 5xx, and with it the
// other tests that share it.
func failing() apptest.Reply { return status(http.StatusConflict) }

// parking says that the message is to be parked at once.
func parking() apptest.Reply { return status(http.StatusConflict, "Amqp-Disposition: park") }

func problem(code int, body string) apptest.Reply {
	return apptest.Say(apptest.Full(code, body, "Content-Type: application/problem+json", "Amqp-Reason: no such customer"))
}
