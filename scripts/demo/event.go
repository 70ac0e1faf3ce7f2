package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"time"
)

// event is one line of a log that speaks of a message, or of whether messages are taken at all.
type event struct {
	at      time.Time
	message string
	// of the app
	answer  int // 0 for an event of the sidecar
	attempt int
	// of the sidecar
	outcome, reason string // of no message: outcome is "paused" or "app up"
	retries         int
}

var appLine = regexp.MustCompile(`^(\S+) POST id=(\S+) delivery=\d+ attempt=(\d+) retries=\d+ status=(\d+)(?: path=\S+)?$`)

func appEvent(line []byte) (event, bool) {
	found := appLine.FindSubmatch(line)
	if found == nil {
		return event{}, false
	}
	e := event{message: string(found[2])}
	e.at, _ = time.Parse(time.RFC3339, string(found[1]))
	e.attempt, _ = strconv.Atoi(string(found[3]))
	e.answer, _ = strconv.Atoi(string(found[4]))
	return e, true
}

func sidecarEvent(line []byte) (event, bool) {
	var l struct {
		Time       time.Time `json:"time"`
		Event      string    `json:"msg"`
		MessageID  string    `json:"message_id"`
		Outcome    string    `json:"outcome"`
		Reason     string    `json:"reason"`
		RetryCount int       `json:"retry_count"`
	}
	if json.Unmarshal(line, &l) != nil {
		return event{}, false
	}
	if l.Event == "paused" || l.Event == "app up" {
		return event{at: l.Time, outcome: l.Event, reason: l.Reason}, true
	}
	if l.MessageID == "" || l.Outcome == "" {
		return event{}, false
	}
	return event{at: l.Time, message: l.MessageID, outcome: l.Outcome, reason: l.Reason, retries: l.RetryCount}, true
}

// follower reads on where it stopped, line by line.
type follower struct {
	child *child
	parse func([]byte) (event, bool)
	seen  int // lines
}

func (f *follower) news() []event {
	var events []event
	all := lines(f.child.output())
	for _, line := range all[f.seen:] {
		if e, ok := f.parse(line); ok {
			events = append(events, e)
		}
	}
	f.seen = len(all)
	return events
}
