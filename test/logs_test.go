package test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/testkit/must"
)

// entry is one JSON log line.
type entry map[string]any

func (e entry) text(key string) string {
	s, _ := e[key].(string)
	return s
}

// is reports whether the line has this msg.
func (e entry) is(msg string) bool { return e.text("msg") == msg }

// output is what a process writes to both its streams. They go to files: what the process has written before it did
// something that a test can see is there, which a reader of a pipe could not promise.
type output struct {
	t       testing.TB
	streams [2]*stream // stdout and stderr: in one file a line of one could end up inside a line of the other

	mu      sync.Mutex
	closed  bool
	raw     []string
	entries []entry
}

// stream is a file that a process writes to.
type stream struct {
	to, from *os.File // the same
	rest     []byte   // of a line that is not complete
}

func newOutput(t testing.TB) *output {
	t.Helper()
	o := &output{t: t}
	dir := t.TempDir()
	for i := range o.streams {
		path := filepath.Join(dir, strconv.Itoa(i))
		to := must.Get(os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(t)
		from := must.Get(os.Open(path))(t)
		o.streams[i] = &stream{to: to, from: from}
	}
	t.Cleanup(o.close)
	return o
}

// of makes what cmd writes the output.
func (o *output) of(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = o.streams[0].to, o.streams[1].to }

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.update()
	o.closed = true
	for _, s := range o.streams {
		_, _ = s.to.Close(), s.from.Close()
	}
}

// update reads what was written since the last call. mu is locked.
func (o *output) update() {
	if o.closed {
		return
	}
	for _, s := range o.streams {
		more, err := io.ReadAll(s.from)
		if err != nil {
			o.t.Errorf("read the output of a process: %v", err)
		}
		lines := bytes.Split(append(s.rest, more...), []byte("\n"))
		s.rest = lines[len(lines)-1]
		for _, line := range lines[:len(lines)-1] {
			o.raw = append(o.raw, string(line))
			var e entry
			if json.Unmarshal(line, &e) == nil {
				o.entries = append(o.entries, e)
			}
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.update()
	return strings.Join(o.raw, "\n")
}

// tail returns the last n lines, each cut to a readable length.
func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.update()
	var b strings.Builder
	for _, l := range o.raw[max(0, len(o.raw)-n):] {
		b.WriteString(l[:min(len(l), 600)] + "\n")
	}
	return b.String()
}

func (o *output) find(match func(entry) bool) []entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.update()
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
	o.update()
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

// spanSink is an OTLP/HTTP collector that keeps what it gets.
type spanSink struct {
	mu   sync.Mutex
	raw  strings.Builder
	auth string
}

// newSpanSink returns a collector and its URL.
func newSpanSink(t *testing.T) (sink *spanSink, url string) {
	t.Helper()
	sink = &spanSink{}
	srv := httptest.NewServer(sink)
	t.Cleanup(srv.Close)
	return sink, srv.URL
}

func (k *spanSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		in = z
	}
	b, err := io.ReadAll(in)
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.raw.Write(b)
	k.auth = r.Header.Get("Authorization")
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// seen returns the last Authorization header, and all bodies.
func (k *spanSink) seen() (auth, bodies string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.auth, k.raw.String()
}
