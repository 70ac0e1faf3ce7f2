package test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
)

// evil has a character of each kind that a terminal obeys: a control character of ASCII and one of C1, DEL, overrides of
// the direction, characters without a width, and separators of lines.
const evil = "\x1b[2J\x07\u009b31m\x7f\u202e\u2066\u200b\u2028\u2029\u0085"

// wantHarmless fails if text has such a character.
func wantHarmless(t testing.TB, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%s: %q", what, text[max(0, i-40):min(len(text), i+40)])
	}
}

// TestNothingHarmsATerminal: what a listener answers may be read with curl, a log with tail, and messages with sidecar dlq. None has a character of
// a message, an answer of the app or a request that a terminal obeys.
func TestNothingHarmsATerminal(t *testing.T) {
	t.Parallel()
	sc, s := harmful(t)
	s.listening()
	c := s.api("")
	var list apiPage
	c.want(200, http.MethodGet, "/dlq/messages", "", &list)
	if got := list.Messages[0].MessageID; got != hostileParked().MessageId {
		t.Errorf("a program reads the id %q", got)
	}
	op := c.over(c.begin("/dlq/redrive", `{"filter":{"text":"`+"\u009b\u202e\u007f"+`"}}`).ID)
	query, segment := url.QueryEscape(evil), url.PathEscape(evil)
	for _, path := range []string{
		"/dlq/messages", "/dlq/messages?body=true", "/dlq/messages/" + list.Messages[0].Ref + "?body=true", "/dlq/groups",
		"/dlq/export", "/dlq/operations", "/dlq/operations/" + op.ID, "/dlq", "/status", "/topology",
		"/dlq/messages?status=" + query, "/dlq/messages?" + query + "=1", "/dlq/messages?subscription=" + query, "/" + segment,
	} {
		_, text := s.request(http.MethodGet, s.control, path, nil)
		wantHarmless(t, path, text)
	}
	for _, path := range []string{"/readyz?subscription=" + query, "/readyz", "/" + segment} {
		_, text := s.request(http.MethodGet, s.admin, path, nil)
		wantHarmless(t, path, text)
	}
	for path, headers := range map[string]map[string]string{
		"/publish/" + segment:          nil,
		"/publish/default/" + segment:  nil,
		"/publish/orders/id":           {"Amqp-Message-Id": "\u009b\u202e\xff"},
		"/publish/orders/key":          {"Amqp-Priority": "\u009b\u202e", "Amqp-Type": "%C2%9B"},
		"/publish/orders/key?" + query: nil,
	} {
		_, header, text := s.send(path, "x", headers)
		wantHarmless(t, path, text)
		for name := range header {
			wantHarmless(t, path+" "+name, header.Get(name))
		}
	}
	const lines = `{"exchange":"` + "\u009b\u202e" + `","body":"x"}` + "\n" + `{"` + "\u009b" + `":1}` + "\n"
	_, _, text := s.send("/publish:batch", lines, map[string]string{"Content-Type": "application/jsonl"})
	wantHarmless(t, "/publish:batch", text)
	s.stop()
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"groups"}, {"groups", "--json"}, {"export"}, {"redrive", "--all", "--dry-run"},
		{"show", list.Messages[0].Ref}, {"show", hostileParked().MessageId, "--json"},
	} {
		r := sc.cli(0, args...)
		if wantHarmless(t, strings.Join(args, " "), r.all()); strings.Contains(r.all(), "\nfake line") {
			t.Errorf("%v: a line of the message's own", args)
		}
	}
	wantHarmless(t, "the log", s.log.String())
	if got := s.log.settled("bad-1" + evil); len(got) != 1 || got[0].text("routing_key") != "order.created" {
		t.Errorf("%v", got)
	}
}

// harmful runs a sidecar until two messages with such characters are parked, for an answer that has them too.
func harmful(t *testing.T) (*scene, *sidecar) {
	sc := publishing(t).with("PUBLISH_EXCHANGES", "orders=gone")
	sc.app.otherwise(func(*delivery) answer {
		return answer{
			status: 503, header: map[string]string{"Amqp-Reason": "reason\u009b\u202e\u2028\u200b", "Content-Type": "application/problem+json"},
			body: `{"title":"title\u009b\u202e\u007f","detail":"` + "\u009b\u202e\u2066\u200b" + `","type":"urn:\u2028"}`,
		}
	})
	for _, m := range messages(numbered("bad", 2)...) {
		m.Type, m.CorrelationId, m.AppId = "type"+evil, "correlation"+evil, "app"+evil
		m.MessageId += evil
		sc.sendMessage(m)
	}
	sc.park(hostileParked())
	s := launch(t, sc.env)
	eventually(t, "both are parked", func() bool { return sc.ready(sc.dlq()) == 3 })
	return sc, s
}
