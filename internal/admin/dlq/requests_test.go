package dlq

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
	"sidecar/internal/openapitest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// FuzzAction reads any body as each of the actions. One that is taken is JSON as the OpenAPI document describes it,
// says each thing once, and never means all messages when it does not say so. Reading one allocates in proportion to
// its size.
func FuzzAction(f *testing.F) {
	document := openapitest.Load(f, must.Get(os.ReadFile("../openapi.json"))(f))
	queue := anyQueue(f)
	f.Add([]byte(`{"all":true}`))
	var members strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&members, `"%x":[],`, i)
	}
	f.Add([]byte("{" + members.String() + `"all":true}`))
	f.Add([]byte(`{"ids":[` + strings.Repeat(`"a",`, 5000) + `"a"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if cost, bound := allocated(func() { _ = httpguard.Decode(body, new(deadletter.Redrive)) }), 64<<10+100*uint64(len(body)); cost > bound {
			t.Fatalf("%d bytes cost %d, the bound is %d", len(body), cost, bound)
		}
		var redrive deadletter.Redrive
		if httpguard.Decode(body, &redrive) == nil && cmp.Or(redrive.Check(), queue.Check(&redrive)) == nil {
			document.Body(t, "/dlq/redrive", body)
			meansIt(t, body, redrive.Selection)
		}
		var discard deadletter.Discard
		if httpguard.Decode(body, &discard) == nil && discard.Check() == nil && (discard.DryRun || discard.Confirm != "") {
			document.Body(t, "/dlq/discard", body)
			meansIt(t, body, discard.Selection)
		}
	})
}

// anyQueue is a queue that no client connects to.
func anyQueue(t testing.TB) *deadletter.Queue {
	t.Helper()
	plan := must.Get(topology.Build(topology.Options{Service: "wms-a"}))(t)
	return deadletter.New(deadletter.Options{}, deadletter.Owner{Plan: plan})[0]
}

func meansIt(t *testing.T, body []byte, s deadletter.Selection) {
	if s.Filter.Empty() != s.All || s.Limit < 0 {
		t.Fatalf("%s: %+v", body, s)
	}
	// What is said twice does not survive being read.
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if fields(v) != keys(body) {
		t.Fatalf("%s says something twice", body)
	}
}

// fields counts the fields of all objects in v.
func fields(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += 1 + fields(e)
		}
	case []any:
		for _, e := range v {
			n += fields(e)
		}
	}
	return n
}

// keys counts the names of fields in a JSON text.
func keys(body []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		v, err := d.Token()
		if err != nil {
			return n
		}
		_, text := v.(string)
		if rest := bytes.TrimLeft(body[d.InputOffset():], httpguard.JSONSpace); text && bytes.HasPrefix(rest, []byte(":")) {
			n++
		}
	}
}

// FuzzQuery reads any query as that of a list. One that is taken is as the OpenAPI document describes it, within the
// bounds, and filters by all that it says.
func FuzzQuery(f *testing.F) {
	document := openapitest.Load(f, must.Get(os.ReadFile("../openapi.json"))(f))
	f.Add("limit=1")
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{URL: &url.URL{Path: "/admin/dlq/queues/q/messages", RawQuery: query}}
		l, err := readQuery(r, parameters{maxLimit: maxList, defaultLimit: defaultList, scan: true, body: true, conditions: true})
		if err != nil {
			return
		}
		document.Check(t, &openapitest.Exchange{
			Method: http.MethodGet, URL: r.URL, Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Answer: []byte(`{"summary":{"queue":"q","total":0,"scanned":0,"matched":0,"complete":true},"messages":[]}`),
		})
		if l.scan.Limit < 1 || l.scan.Limit > 1000 || l.scan.Depth < 1 || l.scan.Depth > 1_000_000 {
			t.Fatalf("%s: %+v", query, l.scan)
		}
		values := r.URL.Query()
		for _, name := range []string{"limit", "scan", "body", "subscription"} {
			values.Del(name)
		}
		if l.filter.Empty() != (len(values) == 0) || l.bodies != (r.URL.Query().Get("body") == "true") {
			t.Fatalf("%s: %+v", query, l)
		}
	})
}

// allocated is what f allocates in bytes, if nothing runs beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestLargeRequestsAreNotRepeated(t *testing.T) {
	t.Parallel()
	ids := strings.Repeat(`"`+strings.Repeat("x", 100)+`",`, 99)
	var q deadletter.Redrive
	if err := httpguard.Decode([]byte(`{"filter":{"id":[`+ids+`"y"]}}`), &q); err != nil {
		t.Fatal(err)
	}
	if got, ok := echo(q).(map[string]int); !ok || got["omitted_bytes"] < maxEcho {
		t.Errorf("%v", echo(q))
	}
	if n := len(q.Filter.IDs()); n != 100 {
		t.Errorf("%d ids", n)
	}
}

// TestTheDocumentHasEveryValue: what the engine takes is what the OpenAPI document and the help of the commands describe.
func TestTheDocumentHasEveryValue(t *testing.T) {
	t.Parallel()
	type schema struct{ Properties map[string]any }
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct{ Schema schema }
				}
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("../openapi.json"))(t), &document))
	same := func(what string, documented map[string]any, known []string) {
		t.Helper()
		if slices.Sort(known); !slices.Equal(slices.Sorted(maps.Keys(documented)), known) {
			t.Errorf("%s: documented are %v, known %v", what, slices.Sorted(maps.Keys(documented)), known)
		}
	}
	var conditions []string
	for _, c := range deadletter.Conditions {
		conditions = append(conditions, c.Name)
	}
	same("conditions", document.Components.Schemas["Filter"].Properties, conditions)
	for path, of := range map[string]any{"/dlq/redrive": deadletter.Redrive{}, "/dlq/discard": deadletter.Discard{}} {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			names = append(names, name)
			if flag := strings.ReplaceAll(name, "_", "-"); deadletter.Help[flag] == "" && name != "filter" && name != "confirm" {
				t.Errorf("%s has no help", flag)
			}
		}
		same(path, document.Paths[path].Post.RequestBody.Content["application/json"].Schema.Properties, names)
	}
}
