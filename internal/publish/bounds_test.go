package publish

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
)

const mib = 1 << 20

// smallMemory bounds the account to n bytes: half of a budget.
func smallMemory(n int64) func(*Options) {
	return func(o *Options) {
		o.Memory = budget.New(2 * n).Account(budget.Publish)
		o.Timeout = time.Hour // nothing here may end by it
	}
}

// TestLargeHeadersOfALine: headers that cannot fit a frame are refused by their size, and their neighbours are
// published.
func TestLargeHeadersOfALine(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const neighbour = `{"routing_key":"k","body":"neighbour"}`
	for _, c := range []struct{ value, text string }{
		{"[" + strings.Repeat(`{"":0},`, 3*mib/7) + "0]", "cannot fit a frame of 131072 bytes"},
		{"[" + strings.Repeat(`[[[]]],`, 3*mib/7) + "0]", "cannot fit a frame of 131072 bytes"},
		{"[" + strings.Repeat(`{"":0},`, 100_000) + "0]", `header "n": with everything before it more than 1048576 bytes in memory`},
	} {
		line := `{"routing_key":"k","headers":{"n":` + c.value + `}}`
		got := r.batch(neighbour, line, neighbour)
		if len(got) != 3 || got[0].Status != 204 || got[1].Status != 400 || got[2].Status != 204 || !strings.Contains(got[1].Detail, c.text) {
			t.Errorf("%.200v", got)
		}
	}
}

// line reads a line and returns the message, and what it holds of the account.
func (r *rig) line(line string) (outgoing, int64) {
	r.Helper()
	x := &room{server: r.server}
	j := &jsonLines{server: r.server, in: bufio.NewReaderSize(strings.NewReader(line), batchBuffer)}
	m, f := j.next(x)
	if f != nil && f.ends {
		r.Error(f.detail)
	}
	taken := x.taken
	x.free()
	return m, taken
}

// memory is how many bytes the value of f holds, and how many were allocated for it.
func memory(f func() any) (held, total int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc), int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemoryOfALine: a line takes at most three bytes for each of its own while it is read, beside decoded headers, and
// what it holds afterwards is what was taken.
func TestMemoryOfALine(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	const size, slack = 3 * mib / 2, mib / 4
	r := &rig{TB: t, server: offline()}
	r.server.o.MaxBody, r.server.o.Memory = 64*mib, budget.New(1<<30).Account(budget.Publish)
	for name, body := range map[string]string{
		"a text":   `"body":"` + strings.Repeat("x", size) + `"`,
		"escapes":  `"body":"` + strings.Repeat(`\u0041\n\"`, size/10) + `"`,
		"JSON":     `"body":[` + strings.Repeat(`{},`, size/3) + `0]`,
		"base64":   `"body_base64":"` + strings.Repeat("AAAA", size/4) + `"`,
		"types":    `"headers":{"n":[` + strings.Repeat(`"AAAA",`, mib/14) + `0]},"header_types":{"n":[` + strings.Repeat(`"binary",`, mib/14) + `null]}`,
		"tables":   `"headers":{"n":[` + strings.Repeat(`{"":0},`, size/7) + `0]}`,
		"fewer":    `"headers":{"n":[` + strings.Repeat(`{"":0},`, mib/14) + `0]}`,
		"a name":   `"` + strings.Repeat("n", size) + `":1`,
		"a string": `"message_id":"` + strings.Repeat("n", size) + `"`,
		"a number": `"priority":` + strings.Repeat("1", size),
		"a header": `"headers":{"` + strings.Repeat("n", size) + `":1}`,
	} {
		line := `{"routing_key":"k",` + body + "}\n"
		var taken int64
		held, total := memory(func() any {
			m, n := r.line(line)
			taken = n
			return m
		})
		runtime.KeepAlive(line)
		n := int64(len(line))
		t.Logf("%s: %d bytes: %d taken at the end, %d held, %d allocated in all", name, n, taken, held, total)
		if held > taken+slack || total > 4*(n+slack) || taken > 3*n+amqpvalue.JSONCost(len(line)) {
			t.Errorf("%s: %d bytes: %d taken, %d held, %d allocated in all", name, n, taken, held, total)
		}
	}
}

// begin sends a batch of one line that ends only when the returned function is called, which returns the results.
func (r *rig) begin(size int) (end func() []result) {
	r.Helper()
	in, out := io.Pipe()
	answer := make(chan reply, 1)
	go func() {
		q := must.Get(http.NewRequest(http.MethodPost, "http://"+r.addr+"/publish:batch", in))(r)
		q.Header.Set("Content-Type", "application/jsonl")
		a := must.Get(client.Do(q))(r)
		defer a.Body.Close()
		b := must.Get(io.ReadAll(a.Body))(r)
		answer <- reply{a, string(b)}
	}()
	must.Get(io.WriteString(out, `{"routing_key":"k","body":"`+strings.Repeat("x", size)))(r)
	return func() []result {
		must.Get(io.WriteString(out, "\"}\n"))(r)
		_ = out.Close()
		return r.results(<-answer)
	}
}

// TestBatchesOfLargeLines: batches that together need more than there is do not wait for each other. Some are busy at
// once, at least one is published, and the account never holds more than its share.
func TestBatchesOfLargeLines(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(10*mib))
	r.server.arrivals.slowAfter = time.Hour // a busy machine sends slowly
	line := `{"routing_key":"k","body":"` + strings.Repeat("x", 3*mib/2) + `"}`
	answers := make(chan reply, maxBatches)
	for range maxBatches {
		go func() { answers <- r.post("/publish:batch", line, "Content-Type", "application/jsonl") }()
	}
	sent := 0
	for range maxBatches {
		a := <-answers
		if a.StatusCode == http.StatusServiceUnavailable {
			continue
		}
		switch got := r.results(a); {
		case len(got) == 1 && got[0].Status == 204:
			sent++
		case len(got) == 1 && got[0].Code == busy && strings.Contains(got[0].Detail, "SIDECAR_MEMORY"):
		default:
			t.Errorf("%v", got)
		}
	}
	if sent == 0 {
		t.Error("none was published")
	}
	brokertest.WaitReady(t, r.url, r.queue, sent)
}

// TestOneBatchWaits: of two batches that hold a part of a line and need more, one waits and the other one is busy at
// once; the first is published when there is memory again.
func TestOneBatchWaits(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(48*mib))
	rest := int64(40 * mib)
	must.Do(t, taken(r.memory.Take(rest)))
	first := r.begin(5 * mib)
	brokertest.Eventually(t, time.Minute, "the first waits", func() bool { return len(r.server.growing) == 1 })
	if got := r.batch(`{"routing_key":"k","body":"` + strings.Repeat("x", 4*mib) + `"}`); len(got) != 1 || got[0].Code != busy {
		t.Errorf("%v", got)
	}
	r.memory.Give(rest)
	if got := first(); len(got) != 1 || got[0].Status != 204 {
		t.Errorf("%v", got)
	}
}

// TestNeverFits: a body and a line that need more memory than there can ever be are refused as too large, not as busy.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(4*mib))
	r.want("a body", r.post("/publish/default/k", strings.Repeat("x", 3*mib)), http.StatusRequestEntityTooLarge, tooLarge, "half of SIDECAR_MEMORY")
	got := r.batch(`{"routing_key":"k","body":"`+strings.Repeat("x", 3*mib)+`"}`, `{"routing_key":"k","body":"next"}`)
	if len(got) != 2 || got[0].Code != tooLarge || got[1].Status != 204 {
		t.Errorf("%v", got)
	}
	r.wantPublished("a body that fits", r.post("/publish/default/k", strings.Repeat("x", 2*mib)))
}

// partly sends the head of a request that announces a length, and a part of the body.
func (r *rig) partly(announced, sent int) net.Conn {
	r.Helper()
	c := dial(r, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", r.addr, announced)
	must.Get(c.Write(make([]byte, sent)))(r)
	return c
}

// TestAnnouncedBodies: bodies that are announced and do not come hold neither memory nor slots that others need.
func TestAnnouncedBodies(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) {
		smallMemory(24 * mib)(o)
		o.MaxInflight = 2
	})
	for range 4 {
		r.partly(16*mib, 1)
	}
	for range 64 {
		r.partly(10, 1)
	}
	brokertest.Eventually(t, time.Minute, "all are being read", func() bool { return r.memory.Held() >= 68*costOfMessage })
	if held := r.memory.Held(); held > 68*(costOfMessage+firstBuffer+2*costOfHeader) {
		t.Errorf("%d bytes are held for 68 bytes", held)
	}
	r.wantPublished("another one", r.post("/publish/default/k", strings.Repeat("x", 4*mib)))
}

// TestSlowestEnds: bodies that stopped in the middle are ended when others need their memory. Their clients are answered
// so.
func TestSlowestEnds(t *testing.T) {
	t.Parallel()
	r := start(t, "", smallMemory(24*mib))
	var slow []net.Conn
	for i := range int64(2) {
		slow = append(slow, r.partly(8*mib, 6*mib))
		brokertest.Eventually(t, time.Minute, "its buffer is the last one", func() bool {
			return r.memory.Held()/mib == (i+1)*8 // while it grows the one before is held, too
		})
	}
	batch := dial(t, r.addr)
	fmt.Fprintf(batch, "POST /publish:batch HTTP/1.1\r\nHost: %s\r\nContent-Type: application/jsonl\r\nContent-Length: %d\r\n\r\n%s", r.addr, 8*mib, `{"routing_key":"k","body":"`+strings.Repeat("x", 3*mib))
	brokertest.Eventually(t, time.Minute, "they have stopped", func() bool { return r.memory.Held() >= 20*mib })
	brokertest.Eventually(t, time.Minute, "another one", func() bool {
		return r.post("/publish/default/k", strings.Repeat("x", 12*mib)).StatusCode == http.StatusNoContent
	})
	for i, c := range slow {
		a := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
		b := must.Get(io.ReadAll(a.Body))(t)
		r.want(fmt.Sprint(i), reply{a, string(b)}, http.StatusRequestTimeout, errSlowest.code, "too slowly")
		c.Close()
	}
	// The batch is the next whose memory is needed.
	brokertest.Eventually(t, time.Minute, "another one", func() bool {
		return r.post("/publish/default/k", strings.Repeat("x", 15*mib)).StatusCode == http.StatusNoContent
	})
	a := must.Get(http.ReadResponse(bufio.NewReader(batch), nil))(t)
	b := must.Get(io.ReadAll(a.Body))(t)
	if got := r.results(reply{a, string(b)}); len(got) != 1 || got[0].Status != http.StatusRequestTimeout || !strings.Contains(got[0].Detail, "too slowly") || !strings.Contains(got[0].Detail, "were not read") {
		t.Errorf("%v", got)
	}
}

// TestRefusedBodyIsAnswered: a client that sends all of a large body before it reads sees why it was refused.
func TestRefusedBodyIsAnswered(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Token = func() string { return "t" } })
	body := make([]byte, 16*mib)
	for _, c := range []struct {
		what, head string
		status     int
	}{
		{"no token", "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\n", 401},
		{"an alias", "POST /publish/none/k HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer t\r\n", 403},
		{"a path", "POST /elsewhere HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer t\r\n", 404},
		{"busy", "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer t\r\n", 503},
		{"a busy batch", "POST /publish:batch HTTP/1.1\r\nHost: %s\r\nContent-Type: application/jsonl\r\nAuthorization: Bearer t\r\n", 503},
	} {
		if c.status == 503 {
			must.Do(t, taken(r.memory.Take(r.memory.Limit()/2)))
		}
		conn := dial(t, r.addr)
		fmt.Fprintf(conn, c.head+"Content-Length: %d\r\n\r\n", r.addr, len(body))
		if _, err := conn.Write(body); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		a, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || a.StatusCode != c.status {
			t.Errorf("%s: %v %v", c.what, a, err)
		}
		conn.Close()
		if c.status == 503 {
			r.memory.Give(r.memory.Limit() / 2)
		}
		brokertest.Eventually(t, time.Minute, "the memory is given back", func() bool { return r.memory.Held() == 0 })
	}
}

// TestHeadersAreCounted: headers of a request and of a part take memory, and those of a part are bounded.
func TestHeadersAreCounted(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	large := strings.Repeat("v", 100<<10)
	c := dial(t, r.addr)
	fmt.Fprintf(c, "POST /publish/default/k HTTP/1.1\r\nHost: %s\r\nAmqp-Header-A: %s\r\nContent-Length: 2\r\n\r\nx", r.addr, large)
	brokertest.Eventually(t, time.Minute, "the headers are counted", func() bool { return r.memory.Held() > int64(2*len(large)) })
	c.Close()
	brokertest.Eventually(t, time.Minute, "the memory is given back", func() bool { return r.memory.Held() == 0 })
	got := r.results(r.post("/publish:batch", "--b\r\nAmqp-Header-A: v\r\n\r\none\r\n--b\r\nAmqp-Header-A: "+strings.Repeat("v", 200<<10)+"\r\n\r\ntwo\r\n--b--\r\n", "Content-Type", "multipart/mixed; boundary=b"))
	if len(got) != 2 || got[0].Status != 204 || got[1].Status != 400 || !strings.Contains(got[1].Detail, "more than 196608 bytes of headers") {
		t.Errorf("%v", got)
	}
}

// FuzzParts reads any batch of parts. What a part takes is bounded by its bytes.
func FuzzParts(f *testing.F) {
	s := offline()
	f.Add([]byte("--b\r\nAmqp-Header-A: %41\r\n\r\none\r\n--b\r\n\r\ntwo\r\n--b--\r\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		p := newParts(s, bytes.NewReader(body), "b", telemetry.Carrier{})
		for {
			r := &room{server: s}
			m, f := p.next(r)
			most := costOfMessage + firstBuffer + 3*int64(len(body)) + costOfHeader*int64(bytes.Count(body, []byte(":")))
			if r.taken > most {
				t.Fatalf("%d bytes take %d", len(body), r.taken)
			}
			if f == nil && !bytes.Contains(body, m.msg.Body) {
				t.Fatalf("%q was not sent", m.msg.Body)
			}
			r.free()
			if f != nil && f.ends {
				break
			}
		}
		if held := s.o.Memory.Held(); held != 0 {
			t.Fatalf("%d bytes are still counted", held)
		}
	})
}
