package topologytest

import (
	"fmt"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
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
	deliveries, err := brokertest.Channel(t, url).Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
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
