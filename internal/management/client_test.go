package management

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

const canary = "canary-5f3a"

// fails wants an error that says all of these, without the password.
func fails(t *testing.T, o Options, says ...string) {
	t.Helper()
	failsWithin(t.Context(), t, o, says...)
}

func failsWithin(ctx context.Context, t *testing.T, o Options, says ...string) {
	t.Helper()
	s, err := Read(ctx, o, &topology.Plan{Queue: "q", Queues: []topology.Queue{{Name: "q"}}})
	if err == nil {
		t.Fatalf("no error: %+v", s)
	}
	for _, part := range append(says, "management API") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("%v holds the password", err)
	}
}

// What RabbitMQ refuses.
func TestRefusals(t *testing.T) {
	t.Parallel()
	o := options(t)
	user := brokertest.User(t, canary)
	for _, tc := range []struct {
		name, user, password, vhost string
		tags                        string
		says                        []string
	}{
		{"password", "guest", canary, o.Vhost, "", []string{o.URL + "/api/overview", "401", "the right password"}},
		{"tag", user, canary, o.Vhost, "", []string{"401", "Not management user", "the tag management"}},
		{"permissions", user, canary, "/", "management", []string{"/api/queues/%2F", "permissions in"}},
		{"virtual host", "guest", "guest", "none/such", "", []string{"/api/queues/none%2Fsuch?", `virtual host "none/such" does not exist`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.tags != "" {
				brokertest.Ctl(t, "set_user_tags", user, tc.tags)
			}
			fails(t, Options{URL: o.URL, User: tc.user, Password: tc.password, Vhost: tc.vhost}, tc.says...)
		})
	}
	// With the tag management a user without any permission on objects sees them.
	p := &topology.Plan{Queue: "q", Queues: []topology.Queue{{Name: brokertest.Queue(t, brokertest.URL(t), "q", nil)}}}
	brokertest.Ctl(t, "set_permissions", user, "^$", "^$", "^$")
	o.User, o.Password = user, canary
	if s := must.Get(Read(t.Context(), o, p))(t); len(s.Queues) != 1 {
		t.Errorf("%+v", s)
	}
}

// Servers that are not RabbitMQ's management API.
func TestWrongServers(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		says    []string
	}{
		"html":         {answer(200, "<html>hello</html>"), []string{"is not the JSON"}},
		"another JSON": {answer(200, `{"status": "ok"}`), []string{"is not RabbitMQ's management API"}},
		"another path": {answer(404, "no such page"), []string{"is not RabbitMQ's management API", "before /api"}},
		"forbidden":    {answer(403, `{"error":"x","reason":"not from there"}`), []string{"403 Forbidden", `"not from there"`, "tag management"}},
		"too large":    {answer(200, strings.Repeat(" ", maxAnswer+1)), []string{"larger than 4 MiB"}},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://me:"+canary+"@other.test/"+canary, http.StatusFound)
		}, []string{"302 Found to https://other.test", "not followed"}},
		"silent":    {func(http.ResponseWriter, *http.Request) { <-hang }, []string{"no complete answer in time"}},
		"slow body": {slowly(hang), []string{"no complete answer in time"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.handler)
			t.Cleanup(server.CloseClientConnections)
			ctx := t.Context()
			if name == "silent" || name == "slow body" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			o := Options{URL: server.URL, User: "me", Password: canary, Vhost: "v"}
			failsWithin(ctx, t, o, append(tc.says, server.URL)...)
		})
	}
}

// slowly begins an answer that never ends.
func slowly(end chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"management_version":`))
		_ = http.NewResponseController(w).Flush()
		<-end
	}
}

// An answer that is wrong after some that were right: nothing is made of a part.
func TestErrorsOnTheWay(t *testing.T) {
	t.Parallel()
	for _, wrong := range []request{
		{overview, ""}, {queue, ""}, {queue, late}, {bindings, ""}, {exchange, ""}, {"/api/queues/v", ""},
	} {
		if _, _, err := readFrom(t, http.StatusOK, wrong); err == nil || !strings.Contains(err.Error(), wrong.path) {
			t.Errorf("a wrong answer to %v: %v", wrong, err)
		}
	}
}

// TestDeletedMeanwhile: a queue that is deleted between two requests about it is missing, and the rest is seen.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for gone, want := range map[request]int64{{queue, ""}: 1, {queue, late}: 2, {bindings, ""}: 3} {
		s, asked, err := readFrom(t, http.StatusNotFound, gone)
		if err != nil || len(s.Queues)+len(s.Bindings) > 0 || len(s.Exchanges) != 1 {
			t.Errorf("not found at %v: %+v, %v", gone, s, err)
		}
		if asked != want {
			t.Errorf("not found at %v: %d requests about the queue, want %d", gone, asked, want)
		}
	}
}

const overview, queue, bindings, exchange = "/api/overview", "/api/queues/v/q", "/api/queues/v/q/bindings", "/api/exchanges/v/x"

// late is part of the query of the second request about a queue.
const late = "disable_stats=true"

type request struct{ path, query string }

// readFrom reads from a server that answers one request with a status and HTML, and counts those about the queue.
func readFrom(t *testing.T, status int, wrong request) (s *Seen, asked int64, err error) {
	t.Helper()
	good := map[string]string{
		overview: `{"management_version":"4"}`, queue: `{"type":"classic"}`, bindings: `[{"source":"x"}]`,
		exchange: `{"type":"topic"}`, "/api/queues/v": `{"page_count":1}`,
	}
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, queue) {
			count.Add(1)
		}
		answer := good[r.URL.Path]
		if r.URL.Path == wrong.path && strings.Contains(r.URL.RawQuery, wrong.query) {
			w.WriteHeader(status)
			answer = "<html>"
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	p := &topology.Plan{Queue: "q", Queues: []topology.Queue{{Name: "q"}}, Exchanges: []topology.Exchange{{Name: "x"}}}
	s, err = Read(t.Context(), Options{URL: server.URL, Vhost: "v"}, p)
	return s, count.Load(), err
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = l.Close()
	fails(t, Options{URL: "http://" + l.Addr().String(), Password: canary}, "connection refused", "/api/overview")
	fails(t, Options{URL: "http://none.invalid:15672", Password: canary}, "none.invalid")
	fails(t, Options{URL: "http://%zz", Password: canary}, "invalid URL escape")
}

func trusting(ca *brokertest.Authority) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.Pool()}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := brokertest.NewAuthority(t)
	o := options(t)
	to := must.Get(url.Parse(o.URL))(t)
	server := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(to))
	server.TLS = ca.ServerConfig(t, "127.0.0.1")
	server.StartTLS()
	t.Cleanup(server.Close)
	o.URL, o.TLS = server.URL, trusting(ca)
	must.Get(Read(t.Context(), o, &topology.Plan{}))(t)
	o.TLS = trusting(brokertest.NewAuthority(t))
	fails(t, o, "certificate")
}
