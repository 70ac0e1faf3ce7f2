package admin

import (
	"encoding/json"
	"sync"
	"time"
)

// Flow counts the outcomes of messages since the start, and those that wait. Its counters only grow.
type Flow struct {
	Received uint64
	Settled  map[string]uint64 // by outcome: ack, retry, requeue, park, discard, release
	Depths   []Depth           // as of the last check; empty while the broker is disconnected
}

// Depth is the number of ready messages in a queue.
type Depth struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"` // main, retry or dlq
	Ready int    `json:"ready"`
}

type flowEvent struct {
	At     time.Time  `json:"at"`
	Status Status     `json:"status"`
	Totals flowTotals `json:"totals"`
	Depths []Depth    `json:"depths"`
}

type flowTotals struct {
	Received uint64            `json:"received"`
	Settled  map[string]uint64 `json:"settled"`
}

// flowCache makes one flow event serve all who listen.
type flowCache struct {
	mu   sync.Mutex
	at   time.Time
	text []byte
}

// event returns the event as JSON, at most a second old.
func (c *flowCache) event(s State) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.at) > flowEvery-streamTick/2 {
		f := s.Flow()
		if f.Depths == nil {
			f.Depths = []Depth{}
		}
		c.text, _ = json.Marshal(flowEvent{At: now.UTC(), Status: s.Status(), Totals: flowTotals{f.Received, f.Settled},
			Depths: f.Depths})
		c.at = now
	}
	return c.text
}
