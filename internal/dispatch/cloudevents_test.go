package dispatch

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

func cloudEvents(o *Options) { o.CloudEvents = true }

func TestCloudEventsAttributes(t *testing.T) {
	t.Parallel()
	m := sample()
	m.Headers = amqp.Table{
		"cloudEvents:id": "e-1", "cloudEvents_id": "underscore", "cloudEvents_ID": "upper", "cloudEvents:source": "/shop", "cloudevents_type": "order.created",
		"cloudEvents_specversion": "1.0", "cloudEvents:Subject": `a "b" ü`, "cloudEvents_sequence": int32(7),
		"cloudEvents_datacontenttype": "text/plain", "cloudEvents_": "v", "cloudEventsX": "other", "tenant": "acme",
	}
	r, o := post(t, m, cloudEvents)
	wantHeaders(t, r.Header, map[string]string{
		"Ce-Id": "e-1", "Ce-Source": "/shop", "Ce-Type": "order.created", "Ce-Specversion": "1.0",
		"Ce-Subject": "a%20%22b%22%20%C3%BC", "Ce-Sequence": "7", "Ce-Datacontenttype": "",
		"Content-Type": "application/json", "Amqp-Header-Tenant": "acme", "Amqp-Header-Cloudeventsx": "other",
		"Amqp-Header-Cloudevents-Id": "",
	})
	wantLeftOut(t, r, o.Truncated, 3)
}

func TestCloudEventsMissingAttributesAreMade(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*message.Message)
		want   map[string]string
	}{
		"from properties": {func(m *message.Message) { m.Type = "shop order" }, map[string]string{
			"Ce-Id": "m-1", "Ce-Source": "/exchanges/wms.main-exchange", "Ce-Type": "shop%20order", "Ce-Specversion": "1.0",
		}},
		"not UTF-8":           {func(m *message.Message) { m.Type, m.MessageID = "a\xff", "\xff" }, map[string]string{"Ce-Type": "a%EF%BF%BD", "Ce-Id": "%EF%BF%BD"}},
		"no content type":     {func(m *message.Message) { m.ContentType = "" }, map[string]string{"Content-Type": ""}},
		"broken content type": {func(m *message.Message) { m.ContentType = "a\r\nb" }, map[string]string{"Content-Type": ""}},
		"from the exchange and the key": {func(m *message.Message) {
			m.Exchange, m.RoutingKey = "a b/ü", "first.key"
		}, map[string]string{"Ce-Source": "/exchanges/a%20b%2F%C3%BC", "Ce-Type": "first.key"}},
		"default exchange": {func(m *message.Message) { m.Exchange = "" }, map[string]string{"Ce-Source": "/exchanges/amq.default"}},
		"nothing at all": {func(m *message.Message) { *m = message.Message{} }, map[string]string{
			"Ce-Id": "4e6ac072bd186385c359bef74566f464", "Ce-Type": "amqp.message",
		}},
		"only what is missing": {func(m *message.Message) { m.Headers = amqp.Table{"cloudEvents_type": "t"} }, map[string]string{
			"Ce-Type": "t", "Ce-Id": "m-1",
		}},
		"92 an empty id is passed as it is": {func(m *message.Message) { m.Headers = amqp.Table{"cloudEvents_id": ""} }, map[string]string{
			"Ce-Id": "(empty)",
		}},
		"an id too long to send": {func(m *message.Message) {
			m.Headers = amqp.Table{"cloudEvents_id": strings.Repeat("x", maxValue+1)}
		}, map[string]string{"Ce-Id": "m-1"}},
		"structured mode": {func(m *message.Message) { m.ContentType = "Application/CloudEvents+json; charset=utf-8" }, map[string]string{
			"Ce-Id": "", "Ce-Source": "", "Ce-Type": "", "Ce-Specversion": "",
		}},
		"content type of the event": {func(m *message.Message) {
			m.ContentType, m.Headers = "", amqp.Table{"cloudEvents_datacontenttype": "text/csv"}
		}, map[string]string{"Content-Type": "text/csv"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			row.change(m)
			r, _ := post(t, m, cloudEvents)
			wantHeaders(t, r.Header, row.want)
		})
	}
}

// A message without an id gets one that a redelivery gets too, and another content does not.
func TestCloudEventsDigestIsStable(t *testing.T) {
	t.Parallel()
	id := func(change func(*message.Message)) string {
		m := sample()
		m.MessageID = ""
		change(m)
		r, _ := post(t, m, cloudEvents)
		return r.Header.Get("Ce-Id")
	}
	first := id(func(*message.Message) {})
	if again := id(func(m *message.Message) { m.Redelivered, m.RetryCount = true, 3 }); first != again {
		t.Errorf("first %q, again %q", first, again)
	}
	seen := map[string]string{first: "the first"}
	for what, change := range map[string]func(*message.Message){
		"body":            func(m *message.Message) { m.Body = []byte("other") },
		"long id":         func(m *message.Message) { m.MessageID = strings.Repeat("i", 1<<20) },
		"another long id": func(m *message.Message) { m.MessageID = strings.Repeat("j", 1<<20) },
		"content type":    func(m *message.Message) { m.ContentType = "text/other" },
	} {
		other := id(change)
		if seen[other] != "" || len(other) != 32 {
			t.Errorf("%s: the id %.40q of %q", what, other, seen[other])
		}
		seen[other] = what
	}
}

// In structured mode the body is an envelope, and only the content type has to say so.
func TestEnvelopes(t *testing.T) {
	const envelope = "application/cloudevents+json"
	t.Parallel()
	for own, want := range map[string]string{
		"text/plain":                   envelope,
		"application/json":             envelope,
		"":                             envelope,
		"broken\r\nX: y":               envelope,
		"application/cloudevents+json": envelope,
		"application/cloudevents+json; charset=utf-8": "application/cloudevents+json; charset=utf-8",
		"Application/CloudEvents+JSON":                "Application/CloudEvents+JSON",
		"application/cloudevents-batch+json":          "application/cloudevents-batch+json",
	} {
		m := sample()
		m.ContentType = own
		m.Headers = amqp.Table{"cloudEvents_id": "e-1"}
		r, o := post(t, m, func(o *Options) { o.Envelopes = true })
		wantHeaders(t, r.Header, map[string]string{"Content-Type": want, "Ce-Id": "", "Amqp-Header-Cloudevents-Id": "e-1"})
		wantLeftOut(t, r, o.Truncated, 0)
	}
}
