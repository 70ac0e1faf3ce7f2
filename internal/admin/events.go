package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	streamTick = 250 * time.Millisecond // how often operations are checked
	flowEvery  = time.Second
	idleEvery  = 15 * time.Second // below the timeouts of usual proxies
	// streamWrite is how long a client may take none of what it is sent.
	streamWrite = 10 * time.Second
)

// stream is one client of /events.
type stream struct {
	s       *Server
	w       http.ResponseWriter
	control *http.ResponseController
	version uint64 // of the operations that were sent
}

// events sends server-sent events until the client is gone, does not read, or the server stops. Every event holds the
// state of a thing and not its change, so a client that missed some has missed nothing.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy in front must not collect them
	if r.Method == http.MethodHead {
		return
	}
	t := stream{s: s, w: w, control: http.NewResponseController(w)}
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := t.send(n); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		}
	}
}

// send writes what is due at a tick.
func (t *stream) send(tick int) error {
	due := func(every time.Duration) bool { return tick%int(every/streamTick) == 0 }
	_ = t.control.SetWriteDeadline(time.Now().Add(streamWrite))
	list, version := t.s.o.DeadLetters.Operations.Since(t.version)
	for _, op := range slices.Backward(list) {
		text, err := json.Marshal(op)
		if err != nil {
			return err
		}
		if err := t.event("operation", text); err != nil {
			return err
		}
	}
	t.version = version
	if due(flowEvery) {
		if err := t.event("flow", t.s.flow.event(t.s.o.State)); err != nil {
			return err
		}
	}
	if due(idleEvery) {
		if _, err := fmt.Fprint(t.w, ": here\n\n"); err != nil {
			return err
		}
	}
	return t.control.Flush()
}

// event writes one event; JSON without indentation has no line break.
func (t *stream) event(name string, data []byte) error {
	_, err := fmt.Fprintf(t.w, "event: %s\ndata: %s\n\n", name, data)
	return err
}

// flowEvent is the data of an event "flow".
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
		c.text, _ = json.Marshal(flowEvent{now.UTC(), s.Status(), s.Flow()})
		c.at = now
	}
	return c.text
}
