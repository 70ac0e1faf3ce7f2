//go:build nightly

package post

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
	"sidecar/test/chaos/source/sourcetest"
)

// listener answers as the sidecar's might, and counts what it has taken.
type listener struct {
	mu    sync.Mutex
	taken map[string]int
	asked map[string]int
}

// status of one message, by what comes to which alias and how often.
func (l *listener) status(alias, id string, size int) (status int, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[id]++
	n := plan.SeqOf(id) % 10
	switch {
	case alias == Unknown:
		return 403, "forbidden"
	case alias == Lonely, alias == Gone:
		return 404, "unroutable"
	case size > MaxBody:
		return 413, "too_large"
	case n == 1 && l.asked[id] < 3:
		return 503, "busy"
	case n == 2:
		return 503, "nacked"
	case n == 3:
		return 504, "unknown"
	}
	l.taken[id]++
	return 204, ""
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/publish:batch" {
		l.batch(w, body)
		return
	}
	f := strings.SplitN(r.URL.Path, "/", 4)
	id := r.Header.Get("Amqp-Message-Id") + r.Header.Get("Idempotency-Key")
	status, code := l.status(f[2], id, len(body))
	w.WriteHeader(status)
	if code != "" {
		_, _ = fmt.Fprintf(w, `{"code":%q}`, code)
	}
}

// batch answers all messages but the last of some.
func (l *listener) batch(w http.ResponseWriter, body []byte) {
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	for i, text := range lines {
		var m line
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			panic(err)
		}
		if i == len(lines)-1 && i%2 == 1 {
			_, _ = io.WriteString(w, `{"index":`)
			panic(http.ErrAbortHandler)
		}
		status, code := l.status(m.Exchange, m.MessageID, len(m.Body))
		_, _ = fmt.Fprintf(w, "{\"index\":%d,\"status\":%d,\"code\":%q}\n", i, status, code)
		_ = http.NewResponseController(w).Flush()
	}
}

// TestWhatIsWrittenDown: the ledger says what was answered, and what was taken was taken once.
func TestWhatIsWrittenDown(t *testing.T) {
	t.Parallel()
	l := &listener{taken: map[string]int{}, asked: map[string]int{}}
	server := httptest.NewServer(l)
	defer server.Close()
	dir := t.TempDir()
	const n, unroutable = 1500, 110
	s := sourcetest.Run(t, func(in io.Reader, out io.Writer) error {
		return Run(Options{Dir: dir, URL: server.URL, Token: "secret", Run: ledger.Run{ID: "cafe", Seed: 3, Batches: 5}, Rate: 5000}, in, out)
	})
	s.Until(n)
	s.AtOnce(n + unroutable)
	s.Stop()
	results, batched := map[string]int{}, 0
	seen := map[int]bool{}
	err := ledger.Each(dir, ledger.RequestFile, func(r *ledger.Requested) error {
		seen[r.Seq] = true
		if _, i := plan.SourceOf(r.Seq); i >= n {
			if r.Want != http.StatusNotFound {
				t.Errorf("message %d at once: a queue may take it", r.Seq)
			}
			if r.Batch {
				batched++
			}
		}
		results[fmt.Sprint(r.Result, " ", r.Want)]++
		taken := l.taken[r.ID]
		if (r.Result == ledger.Confirmed) != (taken == 1) || taken > 1 {
			t.Errorf("message %d is %s (%d %s) and was taken %d times", r.Seq, r.Result, r.Status, r.Code, taken)
		}
		if r.Result == ledger.Refused && r.Status != r.Want {
			t.Errorf("message %d: %d, want %d", r.Seq, r.Status, r.Want)
		}
		if n := plan.SeqOf(r.ID) % 10; r.Want == 0 && r.Result != ledger.Unknown && (n == 1 && r.Tries != 3 || n == 2 && r.Result != ledger.Nacked) {
			t.Errorf("message %d: %s after %d tries", r.Seq, r.Result, r.Tries)
		}
		return nil
	})
	if err != nil || len(seen) != n+unroutable || batched != unroutable/2 {
		t.Errorf("%d of %d messages, %d of %d in batches, %v", len(seen), n+unroutable, batched, unroutable/2, err)
	}
	for _, kind := range []string{"confirmed 0", "nacked 0", "unknown 0", "refused 403", "refused 404", "refused 413"} {
		if results[kind] == 0 {
			t.Errorf("nothing is %s: %v", kind, results)
		}
	}
}

// TestAppDoesNotListen: what could not be sent is sent again, and what broke is not.
func TestAppDoesNotListen(t *testing.T) {
	t.Parallel()
	c := &client{http: &http.Client{}}
	l := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for _, again := range []bool{false, true} { // the listener is there, and then it is not
		c.o.URL = l.URL
		for _, batch := range []bool{false, true} {
			m := &message{alias: Main}
			if batch {
				c.sendBatch(t.Context(), []*message{m})
			} else {
				c.send(t.Context(), m)
			}
			if got := m.conclude(); got != again {
				t.Errorf("batch %v: sent again %v, want %v: %+v", batch, got, again, m.record)
			}
			if !again && m.record.Result != ledger.Unknown {
				t.Errorf("batch %v: %s", batch, m.record.Result)
			}
		}
		l.Close()
	}
}
