package publish

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/dispatch"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// mirror is an app that publishes what it gets: its requests are read as the publish endpoint reads them.
func mirror(t testing.TB, read func(http.Header)) (post func(*message.Message)) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read(r.Header)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(srv.Close)
	target := must.Get(dispatch.New(dispatch.Options{
		URL: srv.URL, Timeout: 30 * time.Second, MaxBody: 16 << 20, Forward: []string{"*"}, CloudEvents: true,
	}))(t)
	t.Cleanup(target.Close)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return func(m *message.Message) {
		t.Helper()
		if o := target.Dispatch(ctx, m); o.Status != http.StatusNoContent {
			t.Fatalf("%+v", o)
		}
	}
}

// random is a message of everything that HTTP can carry: text of any bytes, header names without capitals.
func random(r *rand.Rand) amqp.Publishing {
	text := func() string {
		b := make([]byte, r.IntN(20))
		for i := range b {
			switch r.IntN(4) {
			case 0:
				b[i] = byte(r.IntN(256))
			case 1:
				b[i] = "% \t\r\n\"\\,;=é"[r.IntN(11)]
			default:
				b[i] = byte('a' + r.IntN(26))
			}
		}
		return string(b)
	}
	m := amqp.Publishing{
		MessageId: text(), CorrelationId: text(), ReplyTo: text(), Type: text(), AppId: text(), ContentEncoding: text(), Priority: uint8(r.IntN(256)),
		ContentType: []string{"application/json", "text/plain; charset=\"utf-8\"", "a%20b"}[r.IntN(3)],
	}
	if r.IntN(2) == 0 {
		m.Expiration = fmt.Sprint(1 + r.Uint32N(math.MaxUint32))
	}
	if r.IntN(2) == 0 {
		m.Timestamp = time.Unix(r.Int64N(253402300800), 0).UTC()
	}
	put := func(key, value string) {
		if m.Headers == nil {
			m.Headers = amqp.Table{}
		}
		m.Headers[key] = value
	}
	for range r.IntN(8) {
		name := ""
		for range 1 + r.IntN(10) {
			name += string("abcdefghijklmnopqrstuvwxyz0123456789-"[r.IntN(37)])
		}
		if !message.Reserved(name) && !strings.HasPrefix(name, "trace") && name != "baggage" {
			put(name, text())
		}
	}
	if r.IntN(3) == 0 {
		for _, name := range []string{"id", "source", "type", "custom1"} {
			put(cloudEvent+name, strings.ToValidUTF8(text(), "\uFFFD"))
		}
		put(cloudEvent+"specversion", "1.0")
	}
	return m
}

// TestRoundTrip: what an app is sent of a message, and then publishes, is the same message again, whatever is in it.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var got amqp.Publishing
	var failed *failure
	post := mirror(t, func(h http.Header) { got, failed = readHeaders(h) })
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		want := random(r)
		var m message.Message
		d := amqp.Delivery{
			Headers: want.Headers, ContentType: want.ContentType, ContentEncoding: want.ContentEncoding, MessageId: want.MessageId, CorrelationId: want.CorrelationId,
			ReplyTo: want.ReplyTo, Type: want.Type, AppId: want.AppId, UserId: "stranger", Expiration: want.Expiration, Timestamp: want.Timestamp, Priority: want.Priority,
			Exchange: "x", RoutingKey: "k%",
		}
		m.FromDelivery(&d, "q", 3)
		post(&m)
		if failed != nil {
			t.Fatalf("seed %d: %v for %+v", seed, failed, want)
		}
		if _, event := want.Headers[cloudEvent+"specversion"]; !event { // made up for an app that expects events
			for _, name := range []string{"specversion", "id", "source", "type"} {
				delete(got.Headers, cloudEvent+name)
			}
		}
		if len(got.Headers) == 0 && len(want.Headers) == 0 {
			got.Headers, want.Headers = nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n%+v\nbecame\n%+v", seed, want, got)
		}
	}
}
