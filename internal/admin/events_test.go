package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/admin/dlq"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology/declare"
)

// event is one server-sent event; a comment has no name.
type event struct{ name, data string }

// readEvent returns the next event or comment; io.EOF at the end of the stream.
func readEvent(in *bufio.Reader) (e event, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return e, err
		}
		switch field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case line == "\n":
			return e, nil
		case field == "event":
			e.name = value
		default: // data, or a comment
			e.data = value
		}
	}
}

// listen opens a stream.
func (r *running) listen() (*http.Response, *bufio.Reader) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.control+"/events", nil))(r.t)
	resp := must.Get(client.Do(req))(r.t)
	r.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Errorf("content type %q", resp.Header.Get("Content-Type"))
	}
	return resp, bufio.NewReader(resp.Body)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.state.flow.Depths = []declare.Depth{{Queue: "wms.dlq.a", Kind: "dlq", Ready: 7}}
	one := func(context.Context, deadletter.Report) (deadletter.Progress, error) {
		return deadletter.Progress{Done: 1}, nil
	}
	before, _ := r.o.DeadLetters.Begin(dlq.Operation{Kind: "redrive", Request: map[string]bool{"all": true}}, one)
	<-before.Done
	_, in := r.listen()
	release := make(chan struct{})
	var now *dlq.Tracked
	states := map[string]string{} // of operations
	ended := func() bool { return states[now.ID] != "" && states[now.ID] != "running" }
	for flows := 0; flows < 3 || !ended(); {
		e := must.Get(readEvent(in))(t)
		switch e.name {
		case "flow":
			document.d.Schema(t, "FlowEvent", []byte(e.data))
			var f flowEvent
			if err := json.Unmarshal([]byte(e.data), &f); err != nil || f.Status.State != Consuming || f.Settled["ack"] != 1 || f.Depths[0].Ready != 7 {
				t.Errorf("%v %s", err, e.data)
			}
			if flows++; flows == 1 {
				now, _ = r.o.DeadLetters.Begin(dlq.Operation{Kind: "discard", Request: map[string]bool{"all": true}}, func(_ context.Context, report deadletter.Report) (deadletter.Progress, error) {
					report(deadletter.Progress{Done: 1})
					<-release
					return deadletter.Progress{Done: 2}, nil
				})
			}
		case "operation":
			document.d.Schema(t, "Operation", []byte(e.data))
			var op dlq.Operation
			must.Do(t, json.Unmarshal([]byte(e.data), &op))
			if states[op.ID] == op.State {
				t.Errorf("said twice: %s", e.data)
			}
			states[op.ID] = op.State
			if now != nil && op.ID == now.ID && op.State == "running" {
				if op.Progress.Done != 1 {
					t.Errorf("%s", e.data)
				}
				close(release)
			}
		}
	}
	if states[before.ID] != "succeeded" || states[now.ID] != "succeeded" || len(states) != 2 {
		t.Errorf("%v", states)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	var first *http.Response
	for i := range 8 {
		resp, in := r.listen()
		if _, err := readEvent(in); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %d %v", i, resp.StatusCode, err)
		}
		if i == 0 {
			first = resp
		}
	}
	r.wantProblem("the ninth", r.do(http.MethodGet, r.control, "/events", nil), http.StatusServiceUnavailable)
	r.want("beside them", r.do(http.MethodGet, r.control, "/status", nil), http.StatusOK)
	first.Body.Close()
	brokertest.Eventually(t, time.Minute, "its place is free", func() bool { return len(r.streams) == 7 })
	if resp, _ := r.listen(); resp.StatusCode != http.StatusOK {
		t.Errorf("in its place: %d", resp.StatusCode)
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	_, in := r.listen()
	must.Get(readEvent(in))(t)
	r.shutdown()
	for {
		if _, err := readEvent(in); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the stream was cut: %v", err)
		}
	}
}

// pipes is a listener of connections in memory, which keep to virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return addr("127.0.0.1") }

// stream opens a connection and asks for events on it.
func (p pipes) stream(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	p <- theirs
	must.Get(io.WriteString(ours, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))(t)
	return ours
}

// count calls found for each line of a stream that begins with prefix.
func count(conn net.Conn, prefix string, found func()) {
	for in := bufio.NewScanner(conn); in.Scan(); {
		if strings.HasPrefix(in.Text(), prefix) {
			found()
		}
	}
}

// inMemory serves the control listener on pipes under virtual time.
func inMemory(t *testing.T, test func(s *Server, f *fakeState, p pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, p := newFakeState(), make(pipes)
		s := unbound(optionsOf(f, io.Discard))
		served := make(chan struct{})
		go func() {
			s.control.Listener = p
			_ = s.control.Serve()
			close(served)
		}()
		test(s, f, p)
		close(p)
		s.close()
		<-served
		synctest.Wait()
	})
}

// TestManyStreamsAskOnce: the flow is gathered once a second, however many listen.
func TestManyStreamsAskOnce(t *testing.T) {
	t.Parallel()
	inMemory(t, func(_ *Server, f *fakeState, p pipes) {
		counts := make([]int, 5)
		for i := range counts {
			conn := p.stream(t)
			go count(conn, "event: flow", func() { counts[i]++ })
			defer conn.Close()
			time.Sleep(70 * time.Millisecond)
		}
		time.Sleep(20*time.Second - time.Millisecond)
		synctest.Wait()
		for i, n := range counts {
			if n < 20 || n > 21 {
				t.Errorf("stream %d had %d events in 20 s", i, n)
			}
		}
		if f.flows > 23 {
			t.Errorf("gathered %d times in 20 s", f.flows)
		}
	})
}

// TestAStreamIsNotTakenForGone: the listener's bounds on requests end none.
func TestAStreamIsNotTakenForGone(t *testing.T) {
	t.Parallel()
	inMemory(t, func(s *Server, _ *fakeState, p pipes) {
		conn := p.stream(t)
		defer conn.Close()
		comments := 0
		go count(conn, ": ", func() { comments++ })
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.streams) != 1 || comments < 239 || comments > 241 {
			t.Errorf("%d streams, %d comments in an hour", len(s.streams), comments)
		}
	})
}

// TestAStreamThatIsNotReadEnds: what it holds is free again.
func TestAStreamThatIsNotReadEnds(t *testing.T) {
	t.Parallel()
	inMemory(t, func(s *Server, _ *fakeState, p pipes) {
		conn := p.stream(t)
		defer conn.Close()
		synctest.Wait()
		if len(s.streams) != 1 {
			t.Fatalf("%d streams", len(s.streams))
		}
		time.Sleep(streamWrite + time.Second)
		synctest.Wait()
		if len(s.streams) != 0 || len(s.busy) != 0 {
			t.Errorf("%d streams, %d requests", len(s.streams), len(s.busy))
		}
	})
}

// TestASlowBody: a byte a second is given up after the listener's bound, and nothing has begun.
func TestASlowBody(t *testing.T) {
	t.Parallel()
	inMemory(t, func(s *Server, f *fakeState, p pipes) {
		ours, theirs := net.Pipe()
		p <- theirs
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = io.WriteString(ours, "POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(ours, " "); err != nil {
					return
				}
			}
		}()
		begin := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
		waited := time.Since(begin)
		ours.Close()
		<-written
		synctest.Wait()
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !resp.Close || waited > requestTimeout || f.called() != "" || len(s.busy) != 0 {
			t.Errorf("%d after %v, close %v, called %s", resp.StatusCode, waited, resp.Close, f.called())
		}
	})
}
