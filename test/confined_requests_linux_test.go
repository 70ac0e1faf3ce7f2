package test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// nestedLine is a line of a batch whose headers nest n times.
func nestedLine(n int) string {
	return `{"routing_key":"k","headers":{"h":[` + strings.Repeat(`{"":{}},`, n/8) + `0]}}` + "\n"
}

func (c *confined) batch(lines string) (int, string) {
	c.t.Helper()
	status, _, body := c.send("/publish:batch", lines, map[string]string{"Content-Type": "application/jsonl"})
	return status, body
}

// TestCostlyLines: lines of a batch with headers that no frame can carry, and large texts of several batches at once.
func TestCostlyLines(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	heavy.Lock()
	defer heavy.Unlock()
	s := sc.confined(publishLimit)
	innocent := `{"routing_key":"k","message_id":"innocent","body":"x"}` + "\n"
	for _, size := range []int{3 << 20, 31 << 20} {
		status, body := s.batch(nestedLine(size) + innocent)
		lines := strings.Split(strings.TrimSpace(body), "\n")
		if status != http.StatusOK || len(lines) != 2 || !strings.Contains(lines[0], `"status":4`) || !strings.Contains(lines[1], `"status":204`) {
			t.Errorf("%d bytes: %d %.300s", size, status, body)
		}
	}
	text := `{"routing_key":"k","body":"` + strings.Repeat("x", 15<<20) + `"}` + "\n"
	var batches sync.WaitGroup
	for range 8 {
		batches.Go(func() {
			if status, body := s.batch(text); status != http.StatusServiceUnavailable && !strings.Contains(body, `"status":204`) && !strings.Contains(body, `"code":"busy"`) {
				t.Errorf("a large text: %d %.300s", status, body)
			}
		})
	}
	batches.Wait()
	s.published("/publish/default/k", "behind", nil)
	s.alive()
}

// TestAnnouncedBodiesThatDoNotCome: others publish meanwhile.
func TestAnnouncedBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	s := sc.confined(publishLimit)
	hold(t, s.endpoint, post("/publish/default/k", 16<<20, "")+"x", 4)
	hold(t, s.endpoint, post("/publish/default/k", 10, "")+"x", 256)
	s.published("/publish/default/k", "innocent", nil)
	s.alive()
}

// TestBusyIsRead: clients that send all of a large body before they read see an answer and no reset, whether there was
// memory for it or not.
func TestBusyIsRead(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	heavy.Lock()
	defer heavy.Unlock()
	s := sc.confined(publishLimit)
	const size = 15 << 20
	body := bytes.Repeat([]byte("x"), size)
	var clients sync.WaitGroup
	for _, c := range hold(t, s.endpoint, post("/publish/default/k", size, ""), 12) {
		clients.Go(func() {
			if _, err := c.Write(body); err != nil {
				t.Errorf("a client was cut off: %v", err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("a client had no answer: %v", err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a client had %s", resp.Status)
			}
		})
	}
	clients.Wait()
	s.alive()
}

// TestUnfinishedRequests: far more connections than a listener takes, each with a header that does not end.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	heavy.Lock()
	defer heavy.Unlock()
	s := sc.confined(publishLimit)
	for _, addr := range []string{s.admin, s.control, s.endpoint} {
		hold(t, addr, manyLines, 2000)
		for addr, path := range map[string]string{s.admin: "/livez", s.control: "/status"} {
			if status, body := s.get(addr, path); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		s.published("/publish/default/k", "innocent", nil)
	}
	hold(t, s.control, post("/pause", 10, "Content-Type: application/json\r\n")+"{", 64) // more than its slots
	if status, body := s.get(s.control, "/status"); status != http.StatusOK {
		t.Errorf("beside slow bodies: %d %s", status, body)
	}
	s.alive()
}

// TestTheHookOfTheKubelet: others that wait for the end of a drain do not keep it from waiting.
func TestTheHookOfTheKubelet(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	s := sc.confined(plainLimit)
	ask := "GET /drained HTTP/1.1\r\nHost: h\r\nUser-Agent: kube-lifecycle/1.30\r\n\r\n"
	hold(t, s.admin, ask, 34)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}, Timeout: 10 * time.Second}
	hook := must.Get(d.DialContext(t.Context(), "tcp", s.admin))(t)
	defer hook.Close()
	must.Get(io.WriteString(hook, ask))(t)
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(hook), nil)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	select {
	case <-answered:
		t.Fatal("it was answered although nothing had drained")
	case <-time.After(time.Second): // an answer without waiting comes at once
	}
	if status, body := s.post(s.control, "/drain"); status != http.StatusAccepted {
		t.Fatalf("/drain: %d %s", status, body)
	}
	if resp := <-answered; resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after the drain: %+v", resp)
	}
	s.alive()
}

// TestTwoLengthsInOneRequest is refused, and its connection is closed.
func TestTwoLengthsInOneRequest(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	s := sc.confined(publishLimit)
	c := hold(t, s.endpoint, post("/publish/default/k", 5, "Transfer-Encoding: chunked\r\n")+"0\r\n\r\n", 1)[0]
	in := bufio.NewReader(c)
	resp := must.Get(http.ReadResponse(in, nil))(t)
	must.Get(io.Copy(io.Discard, resp.Body))(t)
	if _, err := in.ReadByte(); resp.StatusCode != http.StatusBadRequest || err == nil {
		t.Errorf("%d, and the connection is open: %v", resp.StatusCode, err == nil)
	}
	s.alive()
}
