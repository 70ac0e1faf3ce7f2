package publish

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkPublish is requests with 1 KiB bodies on 50 connections, each of which waits for its answer; the generator
// and the broker share the machine.
func BenchmarkPublish(b *testing.B) {
	r := start(b, "", nil)
	request := fmt.Sprintf("POST /publish/default/orders.created HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAmqp-Message-Id: 8c0b3a52-0d0e-4f3e-9d7e-0a1b2c3d4e5f\r\nContent-Length: 1024\r\n\r\n%s", r.addr, strings.Repeat("x", 1024))
	var left atomic.Int64
	left.Store(int64(b.N))
	var clients sync.WaitGroup
	b.ResetTimer()
	for range 50 {
		c := dial(b, r.addr)
		clients.Go(func() {
			in := bufio.NewReader(c)
			for left.Add(-1) >= 0 {
				if _, err := c.Write([]byte(request)); err != nil {
					b.Error(err)
					return
				}
				line, err := in.ReadString('\n')
				if err != nil || !strings.HasPrefix(line, "HTTP/1.1 204") {
					b.Errorf("%s %v", line, err)
					return
				}
				for line != "\r\n" {
					if line, err = in.ReadString('\n'); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkBatch is batches of 1,000 items with 1 KiB bodies, one after the other.
func BenchmarkBatch(b *testing.B) {
	r := start(b, "", nil)
	lines := strings.Repeat(`{"routing_key":"orders.created","message_id":"8c0b3a52","headers":{"tenant":"a","attempt":3},"body":"`+strings.Repeat("x", 1024)+`"}`+"\n", 1000)
	b.ReportAllocs()
	for b.Loop() {
		if got := r.post("/publish:batch", lines, "Content-Type", "application/jsonl"); got.StatusCode != http.StatusOK || strings.Count(got.body, ":204}") != 1000 {
			b.Fatalf("%d %.200s", got.StatusCode, got.body)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
