package topologytest

import (
	"encoding/json"
	"strings"
	"sync"
)

// settled is a line of the sidecar's log about a message that was settled.
type settled struct {
	ID      string `json:"message_id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Retries int    `json:"retry_count"`
}

// final reports whether the message is not coming back.
func (s *settled) final() bool {
	return s.Outcome == "ack" || s.Outcome == "park" || s.Outcome == "discard"
}

// keptLines is how much of the log is shown when a test fails.
const keptLines = 200

// journal is the log, which tells what became of each message.
type journal struct {
	mu    sync.Mutex
	lines []string
	byID  map[string][]settled
}

// Write takes one line: slog writes each record in one go.
func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var s settled
	if json.Unmarshal(line, &s) == nil && s.ID != "" && s.Outcome != "" {
		if j.byID == nil {
			j.byID = map[string][]settled{}
		}
		j.byID[s.ID] = append(j.byID[s.ID], s)
	}
	if len(j.lines) == keptLines {
		j.lines = j.lines[1:]
	}
	j.lines = append(j.lines, string(line))
	return len(line), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "")
}

// finals lists how the message ended: once, unless it was moved back.
func (j *journal) finals(id string) []settled {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []settled
	for _, s := range j.byID[id] {
		if s.final() {
			list = append(list, s)
		}
	}
	return list
}

// count counts the settlements of all messages with that outcome and reason.
func (j *journal) count(outcome, reason string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, list := range j.byID {
		for _, s := range list {
			if s.Outcome == outcome && s.Reason == reason {
				n++
			}
		}
	}
	return n
}
