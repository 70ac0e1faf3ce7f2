package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"sidecar/internal/terminal"
)

const (
	streamTick = 250 * time.Millisecond // how often operations are checked
	flowEvery  = time.Second
	idleEvery  = 15 * time.Second // below the timeouts of usual proxies
	// streamWrite is how long a client may take none of what it is sent.
	streamWrite = 10 * time.Second
)

// events sends server-sent events until the client is gone, does not read, or the server stops. Every event holds the
// state of a thing and not its change, so a client that missed some has missed nothing.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy in front must not collect them
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	var version uint64 // of the operations that were sent
	for n := 0; ; n++ {
		var text []byte
		text, version = s.due(n, version)
		_ = control.SetWriteDeadline(time.Now().Add(streamWrite))
		_, err := w.Write(text)
		if err = errors.Join(err, control.Flush()); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.stopping.Done():
			return
		}
	}
}

// due returns the events of a tick, and the version of the operations that they include; since is the last one. JSON
// without indentation has no line break.
func (s *Server) due(tick int, since uint64) (text []byte, version uint64) {
	list, version := s.o.DeadLetters.Since(since)
	for _, op := range slices.Backward(list) {
		data, _ := json.Marshal(op) // it came as JSON, or is made of numbers and texts
		text = fmt.Appendf(text, "event: operation\ndata: %s\n\n", terminal.Escape(data))
	}
	if tick%int(flowEvery/streamTick) == 0 {
		text = fmt.Appendf(text, "event: flow\ndata: %s\n\n", s.flow.event(s.o.State))
	}
	if tick%int(idleEvery/streamTick) == 0 {
		text = append(text, ": here\n\n"...)
	}
	return text, version
}

type flowEvent struct {
	At     time.Time `json:"at"`
	Status Status    `json:"status"`
	Flow
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
		text, _ := json.Marshal(flowEvent{now.UTC(), s.Status(), s.Flow()})
		c.text, c.at = terminal.Escape(text), now
	}
	return c.text
}
