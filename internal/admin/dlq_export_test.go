package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

// TestExport: the answer is what the command writes to a file, and only the write token gets it.
func TestExport(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, withTokens)
	export := func(query, bearer string) reply {
		return p.do(http.MethodGet, p.control, "/dlq/export"+query, authorized("Bearer "+bearer))
	}
	got := export("", token)
	if got.StatusCode != http.StatusOK || got.body != "" || got.Header.Get("Content-Type") != "application/jsonl" {
		t.Errorf("of an empty queue: %d %v %q", got.StatusCode, got.Header, got.body)
	}
	p.parkThree()
	p.park("d\u202e", 503, "the last")
	brokertest.WaitReady(t, p.url, p.dlq(), 4)
	q := deadletter.New(deadletter.Options{Broker: brokerOf(p.url)}, deadletter.Owner{Plan: p.plan})[0]
	var noJSON, none deadletter.Filter
	must.Do(t, errors.Join(noJSON.Set("text", "no json"), none.Set("id", "none")))
	for query, s := range map[string]deadletter.Selection{
		"": {}, "?limit=2": {Limit: 2}, "?limit=1000000&text=NO+JSON": {Filter: noJSON}, "?status=503&status=404": {}, "?id=none": {Limit: 1, Filter: none},
	} {
		var want bytes.Buffer
		must.Get(q.Export(t.Context(), &want, s, nil))(t)
		got := export(query, token)
		if got.StatusCode != http.StatusOK || got.body != want.String() || strings.Contains(got.body, "\u202e") {
			t.Errorf("%s: %d %s, want %s", query, got.StatusCode, got.body, &want)
		}
		if name := got.Header.Get("Content-Disposition"); name != `attachment; filename=`+p.dlq()+`.jsonl` {
			t.Errorf("Content-Disposition %q", name)
		}
	}
	p.wantLogged(6, `"msg":"control","action":"show bodies","peer":"127.0.0.1:`, `"scope":"write","status":200,"message":"export"}`)

	p.wantProblem("with the read token", export("", readToken), http.StatusForbidden, "no message bodies")
	for _, query := range []string{"?limit=0", "?limit=1000001", "?scan=1", "?body=true", "?status=x", "?colour=red"} {
		p.wantProblem(query, export(query, token), http.StatusBadRequest)
	}
	old := p.raw(p.control, "GET /dlq/export HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+token+"\r\n\r\n")
	p.wantProblem("HTTP/1.0", old, http.StatusBadRequest, "needs HTTP/1.1")
}

// TestExportThatBreaks: a client sees that the messages it has received are not all.
func TestExportThatBreaks(t *testing.T) {
	t.Parallel()
	p := startParking(t, nil, nil)
	for range 24 { // more than the buffers of a connection hold
		p.park("large", 503, strings.Repeat("x", 1<<20))
	}
	brokertest.WaitReady(t, p.url, p.dlq(), 24)
	proxy := brokertest.NewProxy(t, p.url)
	r := start(t, func(o *Options) { o.DeadLetters = queueOf(t, o.Logger, p.plan, proxy.URL(t, p.url)) })
	got := must.Get(http.Get("http://" + r.control + "/dlq/export"))(t)
	defer got.Body.Close() //nolint:errcheck // it was only read
	proxy.Refuse()
	file, err := io.ReadAll(got.Body)
	if got.StatusCode != http.StatusOK || len(file) == 0 || err == nil {
		t.Errorf("%d: %d bytes, %v", got.StatusCode, len(file), err)
	}
	brokertest.Eventually(t, time.Minute, "the log line", func() bool {
		return strings.Contains(r.log.String(), `"message":"export"`)
	})
	r.wantLogged(1, `"status":200,"message":"export","error":"`)
	if log := r.log.String(); strings.Contains(log, "panic") {
		t.Errorf("log: %s", log)
	}
	proxy.Restore(t)
	brokertest.WaitReady(t, p.url, p.dlq(), 24)
}
