package test

import (
	"fmt"
	"strings"
	"testing"
)

// bugs are bugs of one app, in the words that differ from message to message.
var bugs = []struct{ report, group string }{
	{`duplicate key value violates unique constraint "users_email_key"` + "\nDETAIL:  Key (email)=(user%d@example.org) already exists.",
		"duplicate key value violates unique constraint … DETAIL: Key (email)=(…) already exists."},
	{"Cannot read properties of undefined (reading 'sku%d')", "Cannot read properties of undefined (reading …)"},
	{"customer user%d@example.org is not known", "customer … is not known"},
}

// TestBugsAreGroups: failures of three bugs, all of them a 500 with one routing key, are three groups with a text that says
// what each is, over the API and with sidecar dlq. Of a long answer as much is kept as SIDECAR_PARK_ANSWER says, and what
// moves a cursor is shown as text.
func TestBugsAreGroups(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0", "PARK_ANSWER", "4KiB")
	sc.app.otherwise(func(d *delivery) answer {
		if strings.HasPrefix(d.id, "good") {
			return status(200)
		}
		var i int
		_, _ = fmt.Sscanf(d.id, "m-%d", &i)
		report := fmt.Sprintf(bugs[i%len(bugs)].report, i)
		return answer{status: 500, header: map[string]string{"Content-Type": "application/json"}, body: fmt.Sprintf(`{"detail":%q,"request":%d}`, report, i)}
	})
	sc.app.on("evil", answer{
		status: 503, header: map[string]string{"Content-Type": "text/plain"},
		body: "one\n\ttwo \x1b[2J\u202e\x00\n" + strings.Repeat("x", 100_000),
	})
	s := sc.run()
	for i := range 12 { // with as many good ones: failures alone would shut the gate for some seconds
		sc.send(fmt.Sprintf("m-%d", i), fmt.Sprintf("good-%d", i))
	}
	sc.send("evil")
	eventually(t, "all parked", func() bool { return sc.ready(sc.dlq()) == 13 })
	if s.log.mentions("users_email_key") || s.log.mentions("sku1") {
		t.Error("the log holds the app's answer")
	}
	checkGroups(t, sc, s)
	text := sc.cli(0, "show", "evil").stdout
	if !strings.Contains(text, "\nanswer\none\n\ttwo \\x1b[2J\\u202e\\x00\nxxx") || strings.ContainsAny(text, "\x1b\u202e\x00") {
		t.Errorf("%q", text)
	}
	sc.cli(0, "discard", "--status", "500", "--yes")
	if d := sc.take(sc.dlq(), 1)[0]; len(fmt.Sprint(d.Headers["x-final-answer"])) != 4096 {
		t.Errorf("%d bytes are kept", len(fmt.Sprint(d.Headers["x-final-answer"])))
	}
}

func checkGroups(t *testing.T, sc *scene, s *sidecar) {
	t.Helper()
	c := s.api("")
	var groups struct {
		Groups []struct {
			ID, Problem, Example string
			Count                int
		}
	}
	c.want(200, "GET", "/dlq/groups?status=500", "", &groups)
	table := sc.cli(0, "groups", "--status", "500").stdout
	found := map[string]int{}
	for _, g := range groups.Groups {
		found[g.Problem] = g.Count
		if !strings.Contains(table, string([]rune(g.Problem)[:16])) || !strings.Contains(table, g.ID) {
			t.Errorf("no %q in\n%s", g.Problem, table)
		}
		var full struct{ Answer string }
		c.want(200, "GET", "/dlq/messages/"+g.Example, "", &full)
		if text := sc.cli(0, "show", g.Example).stdout; full.Answer == "" || !strings.Contains(text, "\nanswer\n"+full.Answer+"\n") {
			t.Errorf("no %q in\n%s", full.Answer, text)
		}
	}
	for _, b := range bugs {
		if found[b.group] != 4 || len(found) != len(bugs) {
			t.Errorf("%d of %q; groups: %v", found[b.group], b.group, found)
		}
	}
	if text := sc.cli(0, "list", "--error", "EXAMPLE.ORG IS NOT").stdout; strings.Count(text, " is not known") != 4 {
		t.Errorf("listed by a part of the answer:\n%s", text)
	}
}
