package dispatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

func routes(items ...string) func(*Options) {
	return func(o *Options) { o.Routes, o.Unrouted = items, true }
}

// keyed is a message with that routing key and type.
func keyed(key, kind string) *message.Message {
	m := sample()
	m.RoutingKey, m.Type = key, kind
	return m
}

func TestRouteIsThePath(t *testing.T) {
	t.Parallel()
	list := routes("order.created=/orders/created", "invoice.#=/invoices", "type:refund.v2=/refunds", "type:com.*=/com/", "*.*.last=/")
	unix := apptest.ListenUnix(t, apptest.Answer(apptest.Status(204)))
	tcp := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	tls, trusted := apptest.ListenTLS(t, apptest.Answer(apptest.Status(204)))
	for _, c := range []struct {
		app                *apptest.Server
		url, origin, query string
		other              string // where what no route matches goes
	}{
		{tcp, tcp.URL, tcp.URL, "", "/"},
		{tcp, tcp.URL + "?token=1", tcp.URL, "?token=1", "/?token=1"},
		{tcp, tcp.URL + "/events/in?token=1", tcp.URL, "?token=1", "/events/in?token=1"},
		{tls, tls.URL + "/events", tls.URL, "", "/events"},
		{unix, unix.URL, unix.URL + ":", "", "/"},
		{unix, unix.URL + ":/events?token=1", unix.URL + ":", "?token=1", "/events?token=1"},
	} {
		target := newTarget(t, c.url, list, func(o *Options) { o.TLS = trusted })
		for _, m := range []struct {
			key, kind, path string
			route           int
		}{
			{"order.created", "", "/orders/created", 1},
			{"order.created", "refund.v2", "/orders/created", 1},
			{"invoice.a.b", "", "/invoices", 2},
			{"x", "refund.v2", "/refunds", 3},
			{"x", "com.example", "/com/", 4},
			{"a.b.last", "", "/", 5},
			{"order.cancelled", "com", "", 0},
		} {
			before := len(c.app.Requests())
			o := dispatch(t, target, keyed(m.key, m.kind))
			wantStatus(t, o, 204)
			path, url := m.path+c.query, c.origin+m.path
			if m.route == 0 {
				path, url = c.other, ""
			}
			if r := c.app.Requests()[before]; r.Target != path || r.Header.Get("Host") == "" {
				t.Errorf("%s, key %q, type %q: %s at %q, want %s", c.url, m.key, m.kind, r.Target, r.Header.Get("Host"), path)
			}
			if o.Route != m.route || o.URL != url {
				t.Errorf("%s, key %q, type %q: route %d to %q, want %d to %q", c.url, m.key, m.kind, o.Route, o.URL, m.route, url)
			}
		}
	}
}

// TestRoutesByHeaderAndExchange: words are between dots, a colon is a part of one.
func TestRoutesByHeaderAndExchange(t *testing.T) {
	t.Parallel()
	list := routes("header:task:shop.tasks.#=/tasks", "header:n:7=/seven", "header:X-A:b:c=/colon", "exchange:Shop.Events:*=/never", "exchange:Shop.Events:X=/x",
		"exchange:Shop.#=/shop", "key:a:b=/key", "exchange: amq.default=/default", "header:void:#=/never")
	for _, c := range []struct {
		exchange, key string
		headers       amqp.Table
		want          string
	}{
		{"e", "k", amqp.Table{"task": "shop.tasks.mail"}, "/tasks"},
		{"e", "k", amqp.Table{"Task": "shop.tasks.mail", "void": nil}, "/"},
		{"e", "k", amqp.Table{"n": int32(7)}, "/seven"},
		{"e", "k", amqp.Table{"X-A": "b:c"}, "/colon"},
		{"Shop.Events:X", "k", nil, "/x"},
		{"Shop.Events:Y", "k", nil, "/shop"},
		{"e", "a:b", nil, "/key"},
		{"", "k", nil, "/default"},
	} {
		m := withHeaders(keyed(c.key, ""), c.headers)
		m.Exchange = c.exchange
		if r, _ := post(t, m, list); r.Target != c.want {
			t.Errorf("%+v: %s", c, r.Target)
		}
	}
}

// TestPlaceholders: a publisher chooses the values, and none may leave the segment it is put into.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	const all = "!$&'()*+,;=:@\"#<>?[\\]^`{|}"
	for _, c := range []struct{ path, key, kind, want string }{
		{"/k/{routing_key}", "order.created", "", "/k/order.created"},
		{"/k/{routing_key}", "a/b", "", "/k/a%2Fb"},
		{"/k/{routing_key}", "%2e%2e", "", "/k/%252e%252e"},
		{"/k/{routing_key}", "a\r\nHost: evil", "", "/k/a%0D%0AHost%3A%20evil"},
		{"/k/{routing_key}", "\xff\x00é", "", "/k/%FF%00%C3%A9"},
		{"/k/{routing_key}", "{type}", "t", "/k/%7Btype%7D"},
		{"/k/{routing_key}", all, "", "/k/" + url.QueryEscape(all)},
		{"/k/{routing_key}", strings.Repeat("\xff", 255), "", "/k/" + strings.Repeat("%FF", 255)},
		{"/{queue}/{type}-{routing_key}/x", "a", "b", "/wms.queue.a/b-a/x"},
		// Without a value that is a part of a segment the route does not match.
		{"/k/{routing_key}", "", "", "/else"},
		{"/k/{type}", "a", "", "/else"},
		{"/k/{routing_key}", "..", "", "/else"},
		{"/k/{routing_key}", "a/../../b", "", "/else"},
		{"/k/{routing_key}", `..\..\admin`, "", "/else"},
		{"/k/{routing_key}", "a/.;b/c", "", "/else"},
		{"/k/{type}", "a", `..\admin`, "/else"},
		{"/k/a{type}..{routing_key}", "/b", "/", "/else"},
		{"/k/..{routing_key}", ";b", "", "/else"},
		{"/k/{type}{routing_key}", "x./b", "a", "/k/ax.%2Fb"},
		{"/k/a{type}..{routing_key}", "b", "/", "/k/a%2F..b"},
		{"/k/{routing_key}", `...\..a;..`, "", "/k/...%5C..a%3B.."},
		{"/k/{type}", "a", strings.Repeat("t", 256), "/else"},
	} {
		r, _ := post(t, keyed(c.key, c.kind), routes("#="+c.path, "#.#=/else"))
		if r.Target != c.want {
			t.Errorf("%s with key %q and type %q: %s, want %s", c.path, c.key, c.kind, r.Target, c.want)
		}
	}
}

func TestTypeOfAnEvent(t *testing.T) {
	t.Parallel()
	structured := func(o *Options) { o.Envelopes = true }
	off := func(*Options) {}
	event := func(content string, h amqp.Table, body string) *message.Message {
		m := keyed("key", "property")
		m.ContentType, m.Headers, m.Body = content, h, []byte(body)
		return m
	}
	long := strings.Repeat("x", maxValue)
	for name, c := range map[string]struct {
		m    *message.Message
		mode func(*Options)
		want string
	}{
		"the property":                 {event("", amqp.Table{"cloudEvents_type": "e"}, `{"type":"e"}`), off, "property"},
		"an attribute":                 {event("", amqp.Table{"cloudEvents:type": "e", "cloudEvents_id": "1"}, `{"type":"f"}`), cloudEvents, "e"},
		"an attribute in lower case":   {event("", amqp.Table{"cloudevents_TYPE": "e"}, ""), cloudEvents, "e"},
		"in batches of events":         {event("", amqp.Table{"cloudEvents_type": "e"}, ""), inBatches("cloudevents"), "e"},
		"an attribute of another kind": {event("", amqp.Table{"cloudEvents_type": int32(1)}, ""), cloudEvents, ""},
		"an envelope in binary mode":   {event("application/cloudevents+json; charset=utf-8", nil, `{"type":"e"}`), cloudEvents, "e"},
		"an envelope":                  {event("text/plain", nil, `{"type":"e"}`), structured, "e"},
		"with escapes":                 {event("", nil, `{"x\"type":"no","a\\":"type","type":"\u0065\/\""}`), structured, `e/"`},
		"cut in an escape":             {event("", nil, `{"type":"e\`), structured, ""},
		"too long":                     {event("", nil, `{"type":"`+long+`"}`), structured, ""},
	} {
		if got := newTarget(t, "http://127.0.0.1:1/", c.mode).typeOf(c.m); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNoRoute: such a message is not POSTed and is no attempt.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	app, target := listen(t, http.StatusNoContent, func(o *Options) { o.Routes = []string{"a=/a", "type:#=/typed"} })
	wantFailure(t, dispatch(t, target, keyed("b", "")), message.FailureNoRoute, "no route matches")
	wantSeen(t, app, 0, 0)
	wantStatus(t, dispatch(t, target, keyed("a", "")), http.StatusNoContent)
}

func TestCheckRoutes(t *testing.T) {
	t.Parallel()
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("k%d=/", i)
	}
	const path, covered, word, empty = "the path must begin", "never used", "must be whole words between dots", "is empty"
	for _, c := range []struct {
		routes string
		want   []string // of each problem, in order
	}{
		{"a=/", nil},
		{"order.created=/orders/created, invoice.#=/invoices, type:refund.v2=/refunds", nil},
		{"a=/{routing_key}/{type}/{queue}-x/%20/~!$&'()*+;=:@,b=/a/b/", nil},
		{"a=/.a/..b/...", nil},
		{strings.Join(many[:256], ","), nil},
		{strings.Join(many, ","), []string{"route 257, \"k256=/\": there must not be more than 256"}},
		{"type:=/x", []string{empty}},
		{"key:Shop:A=/x,exchange:Shop.Events:OrderPlaced=/o,exchange:#=/rest", nil},
		{"header:task:shop.#=/x,header:task:=/y,header:task=/z,header::a=/a", []string{empty, "has a name and a pattern", "has a name and a pattern"}},
		{"order.created:/orders", []string{"write order.created=/orders"}},
		{"Shop:A=/x", []string{`unknown prefix "Shop": use type:`}},
		{"exchange:#=/a,b=/b", []string{covered}},
		{"#=/{type},exchange:#=/x", nil}, {"#=/{type},#=/x", nil}, {"exchange:#=/{routing_key},type:#=/x", nil}, // empty placeholders
		{"header:a:#=/{type},header:a:#=/b", nil}, {"#=/{routing_key},#=/b", nil}, {"a=/{routing_key},a=/b", []string{covered}},
		{"header:a:#=/a,b=/b,header:b:x=/c,header:a:x=/d", []string{"route 4, \"header:a:x=/d\": never used, because route 1"}},
		{"header:a:#=/{routing_key},header:a:x=/d,header:a:y=/{type}", nil}, // a message with an empty key
		{"a.#b=/x", []string{word}},
		{"a", []string{path}},
		{"a=//x", []string{path}},
		{"a=/x#f", []string{path}},
		{"a=/%zz", []string{path}},
		{"a=/" + strings.Repeat("x", 255), []string{path}},
		{"a=/..", []string{"'.' or '..'"}},
		{"a=/..;v=1/y", []string{"'.' or '..'"}},
		{"a=/x/.{type}./y", []string{"'.' or '..'"}},
		{"a=/a,b=/b,a=/c", []string{"route 3, \"a=/c\": never used, because route 1"}},
		{"type:a=/a,a=/b", nil},
		{"#=/a,b=/b", []string{covered}},
		{"#=/{routing_key},a.b=/b", []string{covered}},
		{"#=/{type},a.b=/b", nil}, // a message without a type
		{"type:#=/a,b=/b", nil},   // a message without a type
		{"a.*=/a,a.b=/b,a.#=/c", []string{covered}},
		{"=x", []string{empty, path}},
		{"x:y=/a,=/b,#=/c,b=/d", []string{"unknown prefix", empty, "route 4, \"b=/d\": never used, because route 3"}},
		{"a.b=/x;c.d=/y", []string{"separated by commas"}},
		{"a.#b=/x,=/x,c=../x,d=/{foo},e=/e,e=/f", []string{word, empty, path, "'.' or '..'", path, covered}},
	} {
		got := CheckRoutes(strings.Split(c.routes, ","))
		if len(got) != len(c.want) {
			t.Errorf("%.80s: %q", c.routes, got)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%.80s: %q does not say %q", c.routes, got[i], want)
			}
		}
	}
}

// FuzzPlaceholder: no value leaves its segment, whatever a server makes of the encoded bytes.
func FuzzPlaceholder(f *testing.F) {
	for _, key := range []string{"order.created", "../..", "%2e%2e", "a/b", " ", "\xff", "..", "a/./b", "..;x", `..\..`, "/", "//"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		out := expand("http://app/k/{routing_key}/end", []string{key, "", ""})
		if out == "" {
			return
		}
		u, err := url.Parse(out)
		if err != nil || u.Host != "app" || u.RawQuery != "" || u.Fragment != "" || len(strings.Split(u.EscapedPath(), "/")) != 4 {
			t.Fatalf("%q: %s (%v)", key, out, err)
		}
		if u.Path != "/k/"+key+"/end" {
			t.Errorf("%q is decoded as %q", key, u.Path)
		}
		if p := path.Clean(strings.ReplaceAll(u.Path, `\`, "/")); !strings.HasPrefix(p, "/k/") || !strings.HasSuffix(p, "/end") {
			t.Errorf("%q leads to %q", key, p)
		}
	})
}

// FuzzEnvelopeType: the type is the one that a JSON decoder reads.
func FuzzEnvelopeType(f *testing.F) {
	for _, body := range []string{`{"type":"e"}`, `{"a":{"type":"x"},"b":["type",":"],"type" : "e\"\\"}`, `{"type":null}`, `[]`, `{"\u0074ype":"e"}`, `{"subject":"type","x":"e"}`, `{"type":{"type":"e"},"x":"e"}`, `{"type":"\x"}`, `[{"type":"e"}]`, `{"type":1,"x":"y"}`, `{`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := envelopeType(body)
		var members map[string]json.RawMessage
		var want string
		if json.Unmarshal(body, &members) != nil || bytes.Count(body, []byte(`:`)) > len(members) {
			return // no object, or perhaps two of a name
		}
		if raw := members["type"]; raw != nil && len(raw) <= maxValue {
			_ = json.Unmarshal(raw, &want)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	})
}
