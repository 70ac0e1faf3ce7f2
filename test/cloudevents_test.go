package test

import (
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestCloudEventsBinary(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CLOUDEVENTS", "binary").seed()
	full, colon, none := message("full"), message("colon"), message("none")
	full.Headers = amqp.Table{
		"cloudEvents_id": "e-1", "cloudEvents_source": "/shop", "cloudEvents_type": "order.created", "cloudEvents_specversion": "1.0", "cloudEvents_subject": "7",
	}
	colon.Headers = amqp.Table{"cloudEvents:id": "e-2", "cloudEvents:source": "/shop", "cloudEvents:type": "t", "cloudEvents:specversion": "1.0"}
	sc.sendMessage(full, colon, none)
	sc.run()
	for id, want := range map[string]map[string]string{
		"full":  {"Ce-Id": "e-1", "Ce-Source": "/shop", "Ce-Type": "order.created", "Ce-Specversion": "1.0", "Ce-Subject": "7"},
		"colon": {"Ce-Id": "e-2", "Ce-Source": "/shop", "Ce-Type": "t", "Ce-Specversion": "1.0"},
		"none":  {"Ce-Specversion": "1.0"},
	} {
		h := sc.app.await(id, 1)[0].header
		for k, v := range want {
			if got := h.Values(k); !slices.Equal(got, []string{v}) {
				t.Errorf("%s: %s %q, want %q once", id, k, got, v)
			}
		}
		for _, k := range []string{"Ce-Id", "Ce-Source", "Ce-Type"} {
			if h.Get(k) == "" {
				t.Errorf("%s: required attribute %s is missing", id, k)
			}
		}
	}
}

// An envelope as Dapr's component publishes it arrives as one, byte for byte.
func TestCloudEventsStructured(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CLOUDEVENTS", "structured").seed()
	m := message("envelope")
	m.ContentType = "text/plain"
	m.Body = []byte(`{"specversion":"1.0","id":"e-1","source":"shop","type":"com.dapr.event.sent","datacontenttype":"application/json","data":{"n":1}}`)
	sc.sendMessage(m)
	sc.run()
	got := sc.app.await("envelope", 1)[0]
	if ct := got.header.Get("Content-Type"); ct != "application/cloudevents+json" || string(got.body) != string(m.Body) {
		t.Errorf("content type %q, body %s", ct, got.body)
	}
}
