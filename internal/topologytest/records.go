package topologytest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
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
