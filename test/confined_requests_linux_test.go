package test

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
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

// TestCostlyLines: lines of a batch with headers that no frame can carry, large texts of several batches at once, and
// clients that send all of a large body before they read.
func TestCostlyLines(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	alone(t)
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
	for range 6 {
		batches.Go(func() {
			if status, body := s.batch(text); status != http.StatusServiceUnavailable && !strings.Contains(body, `"status":204`) && !strings.Contains(body, `"code":"busy"`) && !strings.Contains(body, `"code":"slow"`) {
				t.Errorf("a large text: %d %.300s", status, body)
			}
		})
	}
	batches.Wait()
	s.readsWhileBusy(t)
	s.published("/publish/default/k", "behind", nil)
	s.alive()
}

// readsWhileBusy: a client that sends all of a large body before it reads sees an answer and no reset, whether there was
// memory for it or not.
func (c *confined) readsWhileBusy(t *testing.T) {
	t.Helper()
	const size = 15 << 20
	body := bytes.Repeat([]byte("x"), size)
	var clients sync.WaitGroup
	for _, client := range hold(t, c.endpoint, post("/publish/default/k", size, ""), 8) {
		clients.Go(func() {
			if _, err := client.Write(body); err != nil {
				t.Errorf("a client was cut off: %v", err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Errorf("a client had no answer: %v", err)
				return
			}
			_ = resp.Body.Close() // on a busy machine it may be that the client was too slow
		})
	}
	clients.Wait()
}

// TestUnfinishedRequests: announced bodies that do not come, and far more connections than a listener takes, each with a
// header that does not end. Others are answered meanwhile.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	alone(t)
	s := sc.confined(publishLimit)
	hold(t, s.endpoint, post("/publish/default/k", 16<<20, "")+"x", 4)
	hold(t, s.endpoint, post("/publish/default/k", 10, "")+"x", 256)
	s.published("/publish/default/k", "innocent", nil)
	for _, addr := range []string{s.admin, s.control, s.endpoint} {
		hold(t, addr, manyLines, 1200)
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
