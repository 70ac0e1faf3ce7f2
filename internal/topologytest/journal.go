package topologytest

import (
	"encoding/json"
	"strings"
	"sync"

	"sidecar/internal/apptest"
)

// settled is a line of the sidecar's log about a message that was settled.
type settled struct {
	ID      string `json:"message_id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Retries int    `json:"retry_count"`
}

// journal is the log, which has the outcome of each message. It is read while it is written: tests ask it all the
// time.
type journal struct {
	log  apptest.Log
	mu   sync.Mutex
	byID map[string][]settled
}

// Write takes one line: slog writes each record in one go.
func (j *journal) Write(line []byte) (int, error) {
	var s settled
	if json.Unmarshal(line, &s) == nil && s.ID != "" && s.Outcome != "" {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.byID == nil {
			j.byID = map[string][]settled{}
		}
		j.byID[s.ID] = append(j.byID[s.ID], s)
	}
	return j.log.Write(line)
}

func (j *journal) String() string { // the end of it
	lines := j.log.Lines()
	return strings.Join(lines[max(0, len(lines)-200):], "")
}

// finals lists how the message ended: once, unless it was moved back.
func (j *journal) finals(id string) (list []settled) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.byID[id] {
		if s.Outcome == "ack" || s.Outcome == "park" || s.Outcome == "discard" {
			list = append(list, s)
		}
	}
	return list
}

// count counts the settlements of all messages with that outcome and reason.
func (j *journal) count(outcome, reason string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, list := range j.byID {
		for _, s := range list {
			if s.Outcome == outcome && s.Reason == reason {
				n++
			}
		}
	}
	return n
}
