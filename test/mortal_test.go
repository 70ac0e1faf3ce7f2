package test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// mortalAddr makes this binary an app that dies over messages whose id begins with "bad".
const mortalAddr = "SIDECAR_TEST_MORTAL_APP"

// serveMortally is such an app: everything else is answered with 200, after a moment in which "bad" can arrive.
func serveMortally(addr string) int {
	l, err := listenWithin(patience, addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // lives for seconds
		id := r.Header.Get("Amqp-Message-Id")
		fmt.Println(id)
		if strings.HasPrefix(id, "bad") {
			os.Exit(137)
		}
		<-time.After(50 * time.Millisecond)
		w.WriteHeader(http.StatusOK)
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// mortal is that app with a supervisor that starts it again whenever it has died.
type mortal struct {
	mu     sync.Mutex
	seen   map[string]int
	deaths int
}

func newMortal(t *testing.T, addr string) *mortal {
	t.Helper()
	m := &mortal{seen: map[string]int{}}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for m.live(t, addr, stop) {
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return m
}

// live is one life of the app; false ends the supervisor.
func (m *mortal) live(t *testing.T, addr string, stop <-chan struct{}) bool {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.SysProcAttr = []string{mortalAddr + "=" + addr}, dieWithTest()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return false
	}
	died := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.mu.Lock()
			m.seen[lines.Text()]++
			m.mu.Unlock()
		}
		_ = cmd.Wait()
		close(died)
	}()
	select {
	case <-stop:
		_ = cmd.Process.Kill()
		<-died
		return false
	case <-died:
	}
	m.mu.Lock()
	m.deaths++
	m.mu.Unlock()
	select { // as an orchestrator would: not at once
	case <-stop:
		return false
	case <-time.After(500 * time.Millisecond):
		return true
	}
}

// TestMessageThatKillsTheApp: the app is a process that really ends, is away for a while and comes back. Its killer is
// parked after the limit, long before its retries are used up; whoever was there is acked.
func TestMessageThatKillsTheApp(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := guarded(t, 3, "CONCURRENCY", "4", "QUEUE_TYPE", queueType, "APP_HEALTH_INTERVAL", "100ms")
			addr := freeAddr(t)
			m := newMortal(t, addr)
			sc.with("APP_URL", "http://"+addr+"/")
			s := sc.run()
			first, second := numbered("a", 30), numbered("b", 30)
			sc.send(append(append(first, "bad"), second...)...)
			d := sc.take(sc.dlq(), 1)[0]
			h := d.Headers
			if d.MessageId != "bad" || h["x-final-reason"] != "crash" || asInt(h["x-retry-crashes"]) < 3 || h["x-final-status-code"] != nil ||
				!strings.HasPrefix(fmt.Sprint(h["x-final-error"]), "reset") || asInt(h["x-final-retry-count"]) != asInt(h["x-retry-crashes"])-1 {
				t.Errorf("parked %s: %v", d.MessageId, h)
			}
			for _, id := range append(first, second...) {
				s.awaitOutcome(id, "ack")
			}
			sc.settledAll(s, 0)
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.deaths != m.seen["bad"] || m.deaths != asInt(h["x-retry-crashes"]) {
				t.Errorf("%d deaths, %d receipts of the message, %v counted", m.deaths, m.seen["bad"], h["x-retry-crashes"])
			}
		})
	}
}
