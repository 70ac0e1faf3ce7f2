package publish

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// offline is a server that is connected to nothing.
func offline() *Server {
	return New(Options{
		Addr: "127.0.0.1:0", Exchanges: map[string]string{"default": "x"}, RoutingKeys: []string{"*"}, MaxBody: 1 << 10, MaxInflight: 4,
		Memory:    budget.New(64 << 20).Account(budget.Publish),
		Publisher: broker.NewPublisher(broker.NewDialer(broker.Options{})), Logger: telemetry.NewLogger(new(brokertest.Log), "info", "json"),
	})
}

// FuzzHeaders reads any request head. What is taken holds nothing that must not be published, and no property that AMQP
// cannot carry. TestRoundTrip compares messages.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("POST /publish/default/a%20b HTTP/1.1\r\nHost: h\r\nAmqp-Message-Id: a%25\r\nAmqp-Header-X-Death: 1\r\nAmqp-Header-A: %0d\r\nAmqp-Priority: 3\r\n\r\n"))
	f.Add([]byte("POST /publish/default/ HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nce-specversion: 1.0\r\nce-id: \"a\\\"b\"\r\nAmqp-Timestamp: 2026-07-01T12:00:00+02:00\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil {
			return
		}
		got, failed := readHeaders(r.Header)
		if failed != nil {
			if failed.code != invalid || failed.detail == "" {
				t.Fatalf("%v", failed)
			}
			return
		}
		for name, value := range map[string]string{
			"message_id": got.MessageId, "correlation_id": got.CorrelationId, "reply_to": got.ReplyTo, "type": got.Type, "app_id": got.AppId,
			"content_encoding": got.ContentEncoding, "expiration": got.Expiration,
		} {
			if len(value) > 255 {
				t.Fatalf("%s has %d bytes", name, len(value))
			}
		}
		for name, value := range got.Headers {
			if _, ok := value.(string); !ok || message.Reserved(name) || name != strings.ToLower(name) && !strings.HasPrefix(name, cloudEvent) {
				t.Fatalf("%q: %v", name, value)
			}
		}
	})
}

// FuzzLine reads any line of a batch. One that is taken is within bounds, and holds nothing that must not be published.
func FuzzLine(f *testing.F) {
	s := offline()
	f.Add([]byte(`{"exchange":"default","routing_key":"k","body":{"a":1},"headers":{"x-death":[],"n":1.5,"t":{"a":[null,true]}},"priority":3}`))
	f.Add([]byte(`{"routing_key":"","body_base64":"AP8=","expiration":"1","timestamp":"2026-07-01T12:00:00Z","content_type":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.Clone(line) // it may be changed
		r := &room{server: s}
		if failed := r.reserve(int64(cap(line))); failed != nil {
			return // larger than the memory: nothing is read of it
		}
		defer r.free()
		m, failed := s.readLine(line, telemetry.Carrier{}, r)
		if most := int64(cap(line)+len(line)) + amqpvalue.JSONCost(len(line)); r.taken > most {
			t.Fatalf("%d bytes take %d of memory, more than %d", len(line), r.taken, most)
		}
		if failed != nil {
			if outcomes[indexOf(failed.code)].status != failed.status || failed.detail == "" {
				t.Fatalf("%v", failed)
			}
			return
		}
		if len(m.key) > 255 || int64(len(m.msg.Body)) > s.o.MaxBody || len(m.msg.MessageId) > 255 || m.exchange != "x" {
			t.Fatalf("%+v", m)
		}
		if _, err := amqpvalue.TableSize(m.msg.Headers); err != nil && !strings.Contains(err.Error(), "header name of") {
			t.Fatal(err)
		}
		for name := range m.msg.Headers {
			if message.Reserved(name) {
				t.Fatalf("%q is published", name)
			}
		}
	})
}

// FuzzRequest sends any request to a server without a broker. Whatever it is, it is refused with a problem document,
// and nothing is left counted as under way.
func FuzzRequest(f *testing.F) {
	s := offline()
	f.Add([]byte("POST /publish/default/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"))
	f.Add([]byte("POST /publish:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/jsonl\r\nContent-Length: 3\r\n\r\n{}\n"))
	f.Add([]byte("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		s.serve(w, r)
		if w.Code < 400 || w.Code == http.StatusInternalServerError || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if len(s.inflight) != 0 || s.o.Memory.Held() != 0 || len(s.batches) != 0 {
			t.Fatal("something is still counted")
		}
	})
}
