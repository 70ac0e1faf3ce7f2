package publish

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// TestDirectReply: a reply gets a 204 if and only if its requester was there, alone and in a batch.
func TestDirectReply(t *testing.T) {
	t.Parallel()
	r := start(t, "", func(o *Options) { o.Exchanges["reply"] = "" })
	requester := brokertest.Channel(t, r.url)
	replies := must.Get(requester.Consume(message.DirectReply, "", true, false, false, false, nil))(t)
	must.Do(t, requester.Publish("", r.queue, false, false, amqp.Publishing{ReplyTo: message.DirectReply}))
	request := r.get()
	address := request.ReplyTo
	send := map[string]func() reply{
		"alone": func() reply {
			return r.post("/publish/reply/"+url.PathEscape(address), "answer", "Amqp-Correlation-Id", "7")
		},
		"batch": func() reply {
			return r.post("/publish:batch", fmt.Sprintf(`{"exchange":"reply","routing_key":%q,"correlation_id":"7","body":"answer"}`, address),
				"Content-Type", "application/jsonl")
		},
	}
	r.wantPublished("alone", send["alone"]())
	if a := send["batch"](); !strings.Contains(a.body, `"status":204`) {
		t.Errorf("batch: %s", a.body)
	}
	for range send {
		if d := <-replies; string(d.Body) != "answer" || d.CorrelationId != "7" {
			t.Errorf("the requester got %q, %q", d.Body, d.CorrelationId)
		}
	}
	must.Do(t, requester.Close())
	r.want("gone", send["alone"](), http.StatusNotFound, unroutable, "the requester has gone")
	if a := send["batch"](); !strings.Contains(a.body, `"status":404`) || !strings.Contains(a.body, "the requester has gone") {
		t.Errorf("batch: %s", a.body)
	}
	// A queue for replies is a queue.
	r.wantPublished("a queue", r.post("/publish/reply/"+r.queue, "x"))
	r.want("no queue", r.post("/publish/reply/"+message.DirectReply, "x"), http.StatusNotFound, unroutable, "NO_ROUTE")
}
