package admin

import (
	"encoding/json"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/flow"
	"sidecar/internal/openapitest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology/declare"
)

// content is that of an embedded file.
func content(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(embedded.ReadFile(name))(t))
}

// TestPageFiles: the page is whole, small, and has nothing that its policy would stop or that would make markup of
// text.
func TestPageFiles(t *testing.T) {
	t.Parallel()
	files := consoleFiles()
	total := 0
	for at, name := range files {
		body := content(t, name)
		total += len(body)
		if contentTypes[path.Ext(name)] == "" {
			t.Errorf("%s has no type", at)
		}
		if n := strings.Count(body, "\n"); n > 300 {
			t.Errorf("%s has %d lines", at, n)
		}
		text := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "")
		for _, never := range []string{
			"://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "javascript:",
			"<style", " style=", "<script>", "@import", "setTimeout('", "localStorage", "document.cookie", "DOMParser", "setHTML",
		} {
			if strings.Contains(text, never) {
				t.Errorf("%s holds %s", at, never)
			}
		}
		if on := regexp.MustCompile(`<[^>]* on[a-z]+=`).FindString(text); on != "" {
			t.Errorf("%s has a handler in its markup: %s", at, on)
		}
		for _, m := range regexp.MustCompile(`(?:from|src=|href=) ?["']([^"'#][^"']*)["']`).FindAllStringSubmatch(text, -1) {
			if _, ok := files[path.Join(path.Dir(at), m[1])]; !ok {
				t.Errorf("%s asks for %s, which is not there", at, m[1])
			}
		}
	}
	if files["/"] == "" || files["/console.js"] == "" || files["/console.css"] == "" || len(files) < 10 {
		t.Errorf("%d files", len(files))
	}
	if total > 112<<10 {
		t.Errorf("%d bytes are much for a page", total)
	}
	t.Logf("%d files, %d bytes", len(files), total)
}

// TestTheDocumentHasEveryRoute, and nothing else.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	name := regexp.MustCompile(`\{[a-z]+\}`)
	var documented, routed []string
	for _, op := range openapitest.Load(t, []byte(openAPIDocument)).Operations() {
		documented = append(documented, name.ReplaceAllString(op, "{}"))
	}
	for path, route := range r.controlRoutes() {
		path = strings.ReplaceAll(path, "/admin/dlq/queues/"+"wms.dlq.wms-a"+"/", "/admin/dlq/queues/{}/")
		routed = append(routed, route.Method+" "+name.ReplaceAllString(path, "{}"))
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if !slices.Equal(documented, routed) {
		t.Errorf("documented: %v\nserved: %v", documented, routed)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	since := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	r.state.status = Status{
		Version: "1.2.3", Started: since, Service: "wms-a", Consume: &Connection{Connected: true}, Publish: Connection{Blocked: true},
	}
	r.state.status.Consumption = Consumption{
		State: Paused, Warnings: []string{},
		Consumed: &Consumed{
			Queue: "wms.queue.a", Topology: "fanout", App: App{URL: "http://127.0.0.1:8080/"},
			Inflight: 3, Delayed: 1, Concurrency: 10, Prefetch: 20, MaxRetries: 10, RetryDelays: []string{"5s"},
		},
		Pauses: []Pause{
			{Hold: flow.Hold{Reason: "app_down", Detail: "connection refused", Since: since}},
			{Hold: flow.Hold{Reason: "retry_after", Since: since, Until: since.Add(time.Minute)}},
		},
		Findings: []Finding{{Finding: declare.Finding{Object: "queue \"wms.dlq.a\"", Problem: "missing", Fix: "declare it"}}},
		Redeclared: []Redeclared{
			{Redeclared: declare.Redeclared{Object: "queue \"wms.dlq.a\"", Kind: "dlq", At: since, LostSince: since, LastDepth: new(int), MeasuredAt: since, Waiting: new(int)}},
			{Redeclared: declare.Redeclared{Object: "exchange \"wms\"", Kind: declare.KindExchange, At: since, LostSince: since}},
		},
	}
	r.state.status.Subscriptions = []Subscription{{"orders", r.state.status.Consumption}}
	got := r.do(http.MethodGet, r.control, "/status", nil)
	r.wantBody("status", got, http.StatusOK, string(must.Get(json.Marshal(r.state.status))(t)))
	for _, want := range []string{`"state":"paused"`, `"since":"2030-01-02T03:04:05Z"}`, `"until":"2030-01-02T03:05:05Z"}`, `"retry_delays":["5s"]`,
		`"lost_since":"2030-01-02T03:04:05Z","last_depth":0,"measured_at":"2030-01-02T03:04:05Z","waiting":0}`, `"lost_since":"2030-01-02T03:04:05Z"}]`,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.state.onDrain = func() { close(r.state.draining) }
	got := r.do(http.MethodPost, r.control, "/drain", nil)
	if got.StatusCode != http.StatusAccepted || !strings.Contains(got.body, `"state":"draining"`) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	r.wantProblem("pause", r.do(http.MethodPost, r.control, "/pause", nil), http.StatusConflict)
	r.wantProblem("resume", r.do(http.MethodPost, r.control, "/resume", nil), http.StatusConflict)
	r.state.onDrain = nil
	r.want("again", r.do(http.MethodPost, r.control, "/drain", nil), http.StatusAccepted)
	r.wantCalled("drain,drain")
}

// The peer is who is at the other end of the connection, whatever the request claims.
func TestChangesAreWrittenDown(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.do(http.MethodPost, r.control, "/pause", func(q *http.Request) {
		q.Header.Set("X-Forwarded-For", "203.0.113.9")
		q.Header.Set("Forwarded", "for=203.0.113.9")
		q.Header.Set("X-Real-Ip", "203.0.113.9")
	})
	r.do(http.MethodGet, r.control, "/status", nil)
	log := r.log.String()
	if strings.Count(log, "\n") != 1 || // a read is not written down
		!strings.Contains(log, `"level":"info","msg":"control","action":"pause","peer":"127.0.0.1:`) || strings.Contains(log, "203.0.113.9") {
		t.Errorf("log: %s", log)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	send := func(body string) reply {
		return r.do(http.MethodPost, r.control, "/pause", func(q *http.Request) {
			setBody(q, body)
			q.Header.Set("Content-Type", "application/json; charset=utf-8")
		})
	}
	for _, body := range []string{"{}", " {}\n", "{ \t\r\n}", ""} {
		r.want(body, send(body), http.StatusOK)
	}
	for _, body := range []string{`{"for":"1h"}`, "[]", "null", "{}{}", "{", strings.Repeat("[", 10000), "{\x00}", "{}\f", "\u00a0", "{", "}", "\xff\xfe{\x00}\x00", strings.Repeat("x", 1<<20)} {
		r.wantProblem(body[:min(len(body), 20)], send(body), http.StatusBadRequest)
	}
	r.wantCalled("pause,pause,pause,pause")
	large := r.raw(r.control, "POST /pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n{}")
	r.wantProblem("1 GiB", large, http.StatusRequestEntityTooLarge)
}

func TestControlRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	fill(r.busy)
	r.wantProblem("full", r.do(http.MethodGet, r.control, "/status", nil), http.StatusServiceUnavailable)
}

func TestControlMethods(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for path, allow := range map[string]string{"/status": "GET, HEAD", "/drain": "POST", "/pause": "POST", "/resume": "POST"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if strings.Contains(allow, method) {
				continue
			}
			got := r.do(method, r.control, path, nil)
			r.wantProblem(method+" "+path, got, http.StatusMethodNotAllowed)
			if got.Header.Get("Allow") != allow {
				t.Errorf("%s: Allow %q", path, got.Header.Get("Allow"))
			}
		}
		for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "PROPFIND"} {
			r.wantProblem(method+" "+path, r.do(method, r.control, path, nil), http.StatusMethodNotAllowed)
		}
	}
	r.wantProblem("CONNECT", r.raw(r.control, "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"), http.StatusMethodNotAllowed)
	r.want("HEAD /status", r.do(http.MethodHead, r.control, "/status", nil), http.StatusOK)
	r.wantCalled("")
}
