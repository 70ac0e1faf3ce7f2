package test

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"sync"
)

// entry is one JSON log line.
type entry map[string]any

func (e entry) text(key string) string {
	s, _ := e[key].(string)
	return s
}

// is reports whether the line has this msg.
func (e entry) is(msg string) bool { return e.text("msg") == msg }

// output gathers what a sidecar writes to both its streams.
type output struct {
	mu      sync.Mutex
	raw     []string
	entries []entry
}

func (o *output) follow(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		o.add(s.Text())
	}
}

func (o *output) add(line string) {
	var e entry
	err := json.Unmarshal([]byte(line), &e)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raw = append(o.raw, line)
	if err == nil {
		o.entries = append(o.entries, e)
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.raw, "\n")
}

// tail returns the last n lines, each cut to a readable length.
func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for _, l := range o.raw[max(0, len(o.raw)-n):] {
		b.WriteString(l[:min(len(l), 600)] + "\n")
	}
	return b.String()
}

func (o *output) find(match func(entry) bool) []entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []entry
	for _, e := range o.entries {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

// settled returns the lines that record a settlement of the message, oldest first.
func (o *output) settled(id string) []entry {
	return o.find(func(e entry) bool {
		return e.is("settled") && e.text("message_id") == id
	})
}

// outcomes is what the log says became of the message, oldest first.
func (o *output) outcomes(id string) []string {
	var s []string
	for _, e := range o.settled(id) {
		s = append(s, e.text("outcome"))
	}
	return s
}

// mentions reports whether one line holds all the words, in any case.
func (o *output) mentions(words ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.raw {
		l, all := strings.ToLower(l), true
		for _, w := range words {
			all = all && strings.Contains(l, strings.ToLower(w))
		}
		if all {
			return true
		}
	}
	return false
}
