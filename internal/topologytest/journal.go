package topologytest

import (
	"encoding/json"

	"sidecar/internal/apptest"
)

// settled is a line of the sidecar's log about a message that was settled.
type settled struct {
	ID      string `json:"message_id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Retries int    `json:"retry_count"`
}

// journal is the log, which tells what became of each message.
type journal struct{ apptest.Log }

func (j *journal) settled(fits func(*settled) bool) (list []settled) {
	for _, line := range j.Lines(`"outcome":"`) {
		var s settled
		if json.Unmarshal([]byte(line), &s) == nil && s.ID != "" && fits(&s) {
			list = append(list, s)
		}
	}
	return list
}

// finals lists how the message ended: once, unless it was moved back.
func (j *journal) finals(id string) []settled {
	return j.settled(func(s *settled) bool {
		return s.ID == id && (s.Outcome == "ack" || s.Outcome == "park" || s.Outcome == "discard")
	})
}

// count counts the settlements of all messages with that outcome and reason.
func (j *journal) count(outcome, reason string) int {
	return len(j.settled(func(s *settled) bool { return s.Outcome == outcome && s.Reason == reason }))
}
