package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
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
		if want.MessageId == "" {
			got.MessageId = "" // that of the event, made of its source and id
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

// cloudEventVector is an event as a message, as the request to the app, and as the message that the app's publish of that
// request becomes: the attributes are in their canonical text then.
type cloudEventVector struct {
	Name        string            `json:"name"`
	ContentType string            `json:"content_type"`
	Headers     json.RawMessage   `json:"headers"`
	Types       json.RawMessage   `json:"header_types"`
	Body        string            `json:"body"`
	Request     map[string]string `json:"request"` // its ce-* headers, and Content-Type where it differs
	Attributes  map[string]string `json:"attributes"`
	Published   string            `json:"published_content_type"` // where it differs
}

// TestCloudEventVectors: the types of attributes, the rules of the HTTP and AMQP bindings and the events that CloudEvents'
// SDKs and conformance tests use, in binary and structured mode, to the app and back.
func TestCloudEventVectors(t *testing.T) {
	t.Parallel()
	var vectors []cloudEventVector
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("testdata/cloudevents.json"))(t), &vectors))
	var request http.Header
	post := mirror(t, func(h http.Header) { request = h })
	for _, v := range vectors {
		var line amqpvalue.Line
		must.Do(t, line.Decode(fmt.Appendf(nil, `{"routing_key":"k","headers":%s,"header_types":%s}`, v.Headers, cmp.Or(string(v.Types), "null"))))
		headers, _, err := line.Headers(func(string) bool { return false }, math.MaxInt)
		must.Do(t, err)
		m := message.Message{Headers: headers, ContentType: v.ContentType, Body: []byte(v.Body), MaxRetries: 1}
		post(&m)
		got := map[string]string{}
		for name, values := range request {
			if strings.HasPrefix(name, attributePrefix) || name == contentType {
				got[name] = strings.Join(values, " and ")
			}
		}
		want := v.Request
		if v.ContentType != "" {
			want = map[string]string{contentType: v.ContentType}
			maps.Copy(want, v.Request)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the app gets\n%q, want\n%q", v.Name, got, want)
		}
		published, f := readHeaders(request)
		back := map[string]string{}
		for name, value := range published.Headers {
			back[strings.TrimPrefix(name, cloudEvent)], _ = value.(string)
		}
		if f != nil || !reflect.DeepEqual(back, v.Attributes) || published.ContentType != want[contentType] {
			t.Errorf("%s: published as %+v, %v, want %q", v.Name, published, f, v.Attributes)
		}
	}
}

// TestCloudEventHeaders: what another sender may write for an attribute, by the HTTP binding.
func TestCloudEventHeaders(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]string{
		"plain":                           "plain",
		`"quoted \"x\" \\ \y"`:            `quoted "x" \ y`,
		`"with spaces and % 25"`:          "", // a percent sign has to be encoded in quotes, too
		`"100%25"`:                        "100%",
		"Euro%20%e2%82%ac%20%f0%9f%98%80": "Euro € 😀",
		"%41%42%43":                       "ABC",
		"Euro € 😀":                        "Euro € 😀",
		"%C0%A0":                          "",
		"%ED%A0%80":                       "", // half of a surrogate pair
		"\xff":                            "",
		"%zz":                             "",
		"1985-04-12T23:20:50.52Z":         "1985-04-12T23:20:50.52Z",
	} {
		m, f := readHeaders(map[string][]string{ceSpecVersion: {"1.0"}, "Ce-Subject": {wire}})
		if got, _ := m.Headers[cloudEvent+"subject"].(string); got != want || (f == nil) != (want != "") {
			t.Errorf("%q became %q, %v, want %q", wire, got, f, want)
		}
	}
}
