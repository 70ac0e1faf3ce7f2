package apptest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log is a log that a test reads while goroutines write to it.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes text lines here.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Lines returns the lines that contain all parts.
func (l *Log) Lines(parts ...string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}
