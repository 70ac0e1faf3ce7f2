package publish

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// The end of a batch in the middle is reported, and what was read before it was published.
func TestBatchCutShort(t *testing.T) {
	t.Parallel()
	// It bounds the confirm of the first item as well, for which a busy broker may take a while.
	r := start(t, "", func(o *Options) { o.Timeout = 4 * time.Second })
	const body = `{"routing_key":"k","body":"whole"}` + "\n" + `{"routing_key":"k","body":"half"}`
	for _, closes := range []bool{true, false} { // else the rest comes too slowly
		conn := r.open("/publish:batch", "Content-Type: application/jsonl\r\n", len(body)+100, body)
		if closes {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		got := r.results(r.answer(conn))
		r.wantCodes(fmt.Sprint("closes: ", closes), got, published, invalid)
		if got[0].MessageID == "" || !strings.HasPrefix(got[1].Detail, "The batch ended early") {
			t.Errorf("%+v", got)
		}
		r.next("whole")
	}
	if n := brokertest.Ready(t, r.url, r.queue); n != 0 {
		t.Errorf("%d messages more were published", n)
	}
}

// A batch with too many items is published as far as it may go, and says where that is.
func TestBatchOfTooMany(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.server.maxItems = 2
	got := r.batch(`{"routing_key":"","body":"1"}`, `{"routing_key":"","body":"2"}`, `{"routing_key":"","body":"3"}`, `{"routing_key":"","body":"4"}`)
	r.wantCodes("four", got, published, published, tooLarge)
	if !strings.Contains(got[2].Detail, "at most 2 messages") {
		t.Error(got[2].Detail)
	}
	brokertest.WaitReady(t, r.url, r.queue, 2)
}

func TestBatchRefused(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	for _, contentType := range []string{"", "application/json", "multipart/mixed; boundary=b", "multipart/form-data; boundary=b", ";"} {
		r.want(contentType, r.post("/publish:batch", "{}", "Content-Type", contentType), http.StatusUnsupportedMediaType, invalid, "application/jsonl")
	}
	for range maxBatches {
		r.server.batches.Enter()
	}
	r.want("too many", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, busy, "batches")
	r.want("GET", r.do(http.MethodGet, "/publish:batch", nil), http.StatusMethodNotAllowed, badMethod, "")
}

// A batch that stops in the middle: what was under way is known, what was not read is reported.
func TestBatchWhileStopping(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	in, out := io.Pipe()
	answer := make(chan reply)
	go func() {
		answer <- r.do(http.MethodPost, "/publish:batch", in, "Content-Type", "application/jsonl")
	}()
	fmt.Fprintln(out, `{"routing_key":"k","body":"before"}`)
	r.next("before")
	r.server.stopping.Store(true)
	fmt.Fprintln(out, `{"routing_key":"k","body":"read already"}`)
	fmt.Fprintln(out, `{"routing_key":"k","body":"not read"}`)
	_ = out.Close()
	got := r.results(<-answer)
	if last := got[len(got)-1]; got[0].Status != 204 || last.Code != stopping || last.Status != http.StatusServiceUnavailable || !strings.Contains(last.Detail, "were not read") {
		t.Errorf("%+v", got)
	}
}

// TestBatchIsSentWhileItIsRead: a message leaves before the next line has come.
func TestBatchIsSentWhileItIsRead(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const line = `{"routing_key":"k","body":"first"}` + "\n"
	c := r.open("/publish:batch", "Content-Type: application/jsonl\r\n", 2*len(line), line)
	r.next("first")
	must.Get(io.WriteString(c, line))(t)
	r.wantCodes("both", r.results(r.answer(c)), published, published)
}

// Items that find no room say so, and those behind them are published.
func TestBatchBusy(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.MaxInflight = 1 })
	const item = `{"routing_key":"","body":"x"}`
	timeout := r.server.o.Timeout
	r.server.o.Timeout = 500 * time.Millisecond
	r.server.inflight.Enter()
	r.wantCodes("beside as many single messages as there may be", r.batch(item), published)
	r.server.inflight.Leave()
	// The batch itself finds memory, its item does not.
	rest := r.memory.Limit()/2 - costOfBatch - resultStep*costOfResult - costOfMessage - 4<<10
	must.Do(t, taken(r.memory.Take(rest)))
	got := r.batch(item)
	if r.wantCodes("memory", got, busy); !strings.HasSuffix(got[0].Detail, "(SIDECAR_MEMORY). Nothing was sent.") {
		t.Error(got[0].Detail)
	}
	r.server.o.Timeout = timeout
	time.AfterFunc(20*time.Millisecond, func() { r.memory.Give(rest) })
	r.wantCodes("memory that is free later", r.batch(item), published)
	must.Do(t, taken(r.memory.Take(r.memory.Limit()/2)))
	r.want("a body of unknown length", r.do(http.MethodPost, "/publish/direct/"+r.queue, io.MultiReader(strings.NewReader("x")), "Idempotency-Key", "k"), http.StatusServiceUnavailable, busy, "SIDECAR_MEMORY")
	r.want("a batch", r.post("/publish:batch", "{}", "Content-Type", "application/jsonl"), http.StatusServiceUnavailable, busy, "SIDECAR_MEMORY")
	r.memory.Give(r.memory.Limit() / 2)
	if len(r.server.batches) != 0 {
		t.Error("a batch that was refused is still counted")
	}
}

func taken(ok bool) error {
	if !ok {
		return errors.New("there was no memory for the test")
	}
	return nil
}

// TestBatchOfFailures: every one of thousands of items that fail says so, while the batch is still being read. To be
// run with the race detector.
func TestBatchOfFailures(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	const n = 2000
	lines, want := make([]string, n), make([]int, n)
	for i := range lines {
		lines[i], want[i] = `{"exchange":"direct","routing_key":"`+r.queue+`.missing","body":""}`, http.StatusNotFound
		if i%3 == 2 {
			lines[i], want[i] = `{"exchange":"elsewhere","routing_key":"k","body":""}`, http.StatusForbidden
		}
	}
	got := r.batch(lines...)
	if len(got) != n {
		t.Fatalf("%d results", len(got))
	}
	for i, one := range got {
		if one.Status != want[i] || one.Detail == "" && i < maxDetails/2 {
			t.Fatalf("%d: %+v", i, one)
		}
	}
	if of := r.metric("sidecar_publish_requests_total", "exchange", "direct", "result", "unroutable"); of != float64(n-n/3) {
		t.Errorf("counted %v", of)
	}
}

// deadlines are those of a connection.
type deadlines struct {
	http.ResponseWriter
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// TestBatchPatience: time is given to each item, and with it to the answer of the batch.
func TestBatchPatience(t *testing.T) {
	t.Parallel()
	d, now := &deadlines{}, time.Now()
	b := &batch{server: &Server{o: Options{Timeout: 8 * time.Second}}, rc: http.NewResponseController(d)}
	for after, from := range map[time.Duration]time.Duration{0: 0, time.Second - 1: 0, time.Second: time.Second} {
		b.patient = time.Time{}
		b.patience(now)
		if b.patience(now.Add(after)); d.read != now.Add(from+9*time.Second) || d.write != now.Add(from+17*time.Second+answerTimeout) {
			t.Errorf("after %v: %v to read, %v to answer", after, d.read.Sub(now), d.write.Sub(now))
		}
	}
}
