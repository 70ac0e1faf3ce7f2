package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// bodyOfJSON is a JSON object of 1 KiB.
var bodyOfJSON = []byte(`{"order":17,"lines":[` + strings.Repeat(`{"sku":"a-17","count":2,"price":12.5},`, 26) + `{"sku":"end"}]}`)

// contents are messages of 1 KiB as publishers send them.
func contents() map[string]*message.Message {
	all := map[string]*message.Message{"json": benchMessage(0), "json-headers=8": benchMessage(8), "text": benchMessage(0), "binary": benchMessage(0), "event": benchMessage(0)}
	for name, m := range all {
		m.Body = bodyOfJSON
		switch name {
		case "text":
			m.ContentType = "text/plain"
		case "binary":
			m.ContentType, m.Body = "application/octet-stream", []byte(strings.Repeat("\xff\x00ab", 256))
		case "event":
			m.Headers = amqp.Table{"cloudEvents_id": "e-1", "cloudEvents_type": "t", "cloudEvents_source": "/s", "cloudEvents_subject": "17"}
		}
	}
	all["json"].Trace = message.TraceContext{}
	return all
}

func repeated(m *message.Message, n int) []*message.Message {
	ms := make([]*message.Message, n)
	for i := range ms {
		ms[i] = m
	}
	return ms
}

func BenchmarkBatchEncode(b *testing.B) {
	for format := range formats {
		t := newTarget(b, "http://127.0.0.1:8080/", inBatches(format))
		for name, m := range contents() {
			ms := repeated(m, 100)
			b.Run(fmt.Sprintf("%s/%s", format, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					x := batches.Get().(*batch)
					if !x.encode(b.Context(), t, ms) {
						b.Fatal("no memory")
					}
					x.release(nil)
				}
			})
		}
	}
}

// BenchmarkBatch is a round trip with 100 messages to a server that does as little as possible.
func BenchmarkBatch(b *testing.B) {
	url := bareServer(b, "tcp", "}}\n")
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("jsonl/n=%d", n), func(b *testing.B) {
			t, ms := newTarget(b, url, inBatches("jsonl")), repeated(contents()["json"], n)
			b.ReportAllocs()
			for b.Loop() {
				if whole, each := t.DispatchBatch(b.Context(), ms, message.TraceContext{}); len(each) != n {
					b.Fatalf("%+v", whole)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}

// BenchmarkVerdicts reads answers to 100 messages.
func BenchmarkVerdicts(b *testing.B) {
	ms, leftOut := samples(100), make([]int, 100)
	answer := func(kind, body string) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	for _, a := range []sent{
		{"204", typicalAnswer}, {"text", answer("text/plain", "ok")}, {"object", answer("application/json", `{"ok":true}`)},
		{"one-line", answer("application/jsonl", `{"index":17,"status":503}`)},
		{"Lambda", answer("application/json", `{"batchItemFailures":[{"itemIdentifier":"m-17"}]}`)},
	} {
		b.Run(a.name, func(b *testing.B) {
			target := &Target{}
			x := newAttempt(target, time.Time{})
			defer x.release()
			x.answer.batch = true
			next := parse(b, x, a.text)
			b.ReportAllocs()
			for b.Loop() {
				x.out = message.Outcome{}
				next()
				if len(x.verdicts(target, ms, leftOut)) != len(ms) {
					b.Fatalf("%+v", x.out)
				}
			}
		})
	}
}
