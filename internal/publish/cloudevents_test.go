package publish

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

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
