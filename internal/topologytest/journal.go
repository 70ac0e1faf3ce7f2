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
	if json.Unmarshal(line, &s) == nil && s.ID != "" && (s.Outcome == "ack" || s.Outcome == "park" || s.Outcome == "discard") {
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
