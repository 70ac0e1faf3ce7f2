package dispatch

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// TestDocumentedBatches: the requests of docs/batches.md are what an app gets. A page leaves out the usual headers, and a
// boundary is another one each time.
func TestDocumentedBatches(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/batches.md")
	if err != nil {
		t.Fatal(err)
	}
	ms := []*message.Message{
		{
			Body: []byte(`{"id":42}`), ContentType: "application/json", MessageID: "order-42-created", Queue: "shop.queue.shop-billing",
			Exchange: "shop.main-exchange", RoutingKey: "order.created", MaxRetries: 10, Timestamp: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
			Headers: amqp.Table{"tenant": "a"},
			Trace:   message.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
		{
			Body: []byte("\x00\xff"), ContentType: "image/png", MessageID: "image-7", Queue: "shop.queue.shop-billing",
			Exchange: "shop.main-exchange", RoutingKey: "image.stored", MaxRetries: 10,
			Trace: message.TraceContext{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
	}
	boundary := regexp.MustCompile(`[A-Z2-7]{26}`)
	again, _, _ := postAll(t, "multipart", ms)
	for format := range formats {
		r, _, _ := postAll(t, format, ms)
		if r.Header.Get("Content-Type") == again.Header.Get("Content-Type") {
			t.Errorf("%s: the boundary is used twice", format)
		}
		got := "POST /events HTTP/1.1\nContent-Type: " + r.Header.Get("Content-Type") + "\n\n" + string(r.Body)
		got = boundary.ReplaceAllString(strings.ReplaceAll(got, "\r\n", "\n"), "UDKJ3NJ7Q5YLLWYIGBZZEHIQ7J")
		got = strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\x00\xff", "(two bytes)")
		_, section, _ := strings.Cut(string(page), "\n### "+format+"\n")
		_, block, found := strings.Cut(section, "```http\n")
		block, _, ended := strings.Cut(block, "\n```")
		if !found || !ended || block != got {
			t.Errorf("%s: documented\n%s\nwant\n%s", format, block, got)
		}
	}
}
