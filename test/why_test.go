package test

import (
	"fmt"
	"strings"
	"testing"
)

// bugs are five bugs of one app, in the words that differ from message to message.
var bugs = []struct{ report, group string }{
	{`duplicate key value violates unique constraint "users_email_key"` + "\nDETAIL:  Key (email)=(user%d@example.org) already exists.",
		"duplicate key value violates unique constraint … DETAIL: Key (email)=(…) already exists."},
	{"Cannot read properties of undefined (reading 'sku%d')", "Cannot read properties of undefined (reading …)"},
	{"order 3f2a7c%02x-0000-4000-8000-000000000000 is closed", "order … is closed"},
	{"customer user%d@example.org is not known", "customer … is not known"},
	{"GET http://stock:8080/items/%d: connection refused", "GET http://stock:…/… connection refused"},
}

// frameworks write an error as these do by default.
var frameworks = map[string]func(report string, i int) answer{
	"flask": func(s string, i int) answer {
		return answer{status: 500, header: map[string]string{"Content-Type": "application/json"}, body: fmt.Sprintf(`{"detail":%q,"request":%d}`, s, i)}
	},
	"spring": func(s string, i int) answer {
		return answer{status: 500, header: map[string]string{"Content-Type": "application/json"}, body: fmt.Sprintf(
			`{"timestamp":"2026-11-25T13:14:%02d.123+00:00","status":500,"error":"Internal Server Error","message":%q,"path":"/"}`, i%60, s)}
	},
	"express": func(s string, i int) answer {
		return answer{status: 500, header: map[string]string{"Content-Type": "text/html; charset=utf-8"}, body: fmt.Sprintf(
			"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<title>Error</title>\n</head>\n<body>\n<pre>Error: %s<br> &nbsp; &nbsp;at book (/app/%d.js)</pre>", strings.NewReplacer(`"`, "&quot;", "'", "&#39;").Replace(s), i)}
	},
}

// TestFiveBugsAreFiveGroups: seventy failures of five bugs, all of them a 500 with one routing key, are five groups with
// a text that says what each is, over the API and with sidecar dlq.
func TestFiveBugsAreFiveGroups(t *testing.T) {
	t.Parallel()
	for name, framework := range frameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0").with("LOG_LEVEL", "debug")
			sc.app.otherwise(func(d *delivery) answer {
				if strings.HasPrefix(d.id, "good") {
					return status(200)
				}
				var i int
				_, _ = fmt.Sscanf(d.id, "m-%d", &i)
				return framework(fmt.Sprintf(bugs[i%len(bugs)].report, i), i)
			})
			s := sc.run()
			for i := range 70 { // with as many good ones: failures alone would shut the gate for some seconds
				sc.send(fmt.Sprintf("m-%d", i), fmt.Sprintf("good-%d", i))
			}
			eventually(t, "all parked", func() bool { return sc.ready(sc.dlq()) == 70 })
			if s.log.mentions("users_email_key") || s.log.mentions("sku11") {
				t.Error("the log holds the app's answer")
			}
			checkFiveGroups(t, sc, s)
		})
	}
}

func checkFiveGroups(t *testing.T, sc *scene, s *sidecar) {
	t.Helper()
	c := s.api("")
	var groups struct {
		Groups []struct {
			ID, Problem, Example string
			Count                int
		}
	}
	c.want(200, "GET", "/dlq/groups", "", &groups)
	table := sc.cli(0, "groups").stdout
	found := map[string]int{}
	for _, g := range groups.Groups {
		found[strings.TrimPrefix(g.Problem, "Error: ")] = g.Count
		if !strings.Contains(table, string([]rune(g.Problem)[:16])) || !strings.Contains(table, g.ID) {
			t.Errorf("no %q in\n%s", g.Problem, table)
		}
		var full struct{ Answer string }
		var list struct{ Messages []struct{ Answer string } }
		c.want(200, "GET", "/dlq/messages/"+g.Example, "", &full)
		c.want(200, "GET", "/dlq/messages?limit=1&group="+g.ID, "", &list)
		if full.Answer == "" || len(list.Messages) != 1 || list.Messages[0].Answer == "" {
			t.Errorf("%q in full, %+v in the list", full.Answer, list)
		}
		if text := sc.cli(0, "show", g.Example).stdout; !strings.Contains(text, "\nanswer\n"+strings.ReplaceAll(full.Answer, "\u00a0", "\\u00a0")+"\n") {
			t.Errorf("no %q in\n%s", full.Answer, text)
		}
	}
	for _, b := range bugs {
		if found[b.group] != 14 || len(found) != len(bugs) {
			t.Errorf("%d of %q; groups: %v", found[b.group], b.group, found)
		}
	}
	if text := sc.cli(0, "list", "--error", "EXAMPLE.ORG IS NOT").stdout; strings.Count(text, " is not known") != 14 {
		t.Errorf("listed by a part of the answer:\n%s", text)
	}
}

// TestHostileAnswersHarmNoTerminal: what an app answers is shown on lines of its own, without what moves a cursor.
func TestHostileAnswersHarmNoTerminal(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0").with("PARK_ANSWER", "4KiB").seed()
	sc.app.on("m", answer{status: 500, header: map[string]string{"Content-Type": "text/plain"}, body: "one\n\ttwo \x1b[2J\u202e\x00\n" + strings.Repeat("x", 100_000)})
	sc.send("m")
	sc.run()
	eventually(t, "parked", func() bool { return sc.ready(sc.dlq()) == 1 })
	text := sc.cli(0, "show", "m").stdout
	if !strings.Contains(text, "\nanswer\none\n\ttwo \\x1b[2J\\u202e\\x00\nxxx") || strings.ContainsAny(text, "\x1b\u202e\x00") {
		t.Errorf("%q", text)
	}
	if d := sc.take(sc.dlq(), 1)[0]; len(fmt.Sprint(d.Headers["x-final-answer"])) != 4096 {
		t.Errorf("%d bytes are kept", len(fmt.Sprint(d.Headers["x-final-answer"])))
	}
}
