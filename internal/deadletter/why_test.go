package deadletter

import (
	"fmt"
	"strings"
	"testing"
)

// TestWhy: what different frameworks answer, and what is shown of it. A key says the status.
func TestWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    Facts
		want string
	}{
		"Amqp-Reason first":            {Facts{Detail: "no stock", Problem: Problem{Type: "urn:p", Title: "T"}, Answer: `{"error":"x"}`}, "no stock"},
		"a problem":                    {Facts{Status: 422, Problem: Problem{Type: "urn:p", Title: "Out of stock"}, Answer: `{"error":"x"}`}, "Out of stock"},
		"a problem without a title":    {Facts{Status: 422, Problem: Problem{Type: "urn:p", Detail: "d"}}, "urn:p"},
		"about:blank":                  {Facts{Status: 500, Problem: Problem{Type: "about:blank", Title: "Internal Server Error", Detail: "sku gone"}, Answer: `{"type":"about:blank","title":"Internal Server Error","detail":"sku gone"}`}, "sku gone"},
		"about:blank, answer off":      {Facts{Status: 500, Problem: Problem{Type: "about:blank", Title: "Internal Server Error", Detail: "sku gone"}}, "sku gone"},
		"about:blank alone":            {Facts{Status: 500, Problem: Problem{Type: "about:blank"}}, "about:blank"},
		"no answer":                    {Facts{Error: "timeout: no answer"}, "timeout: no answer"},
		"nothing":                      {Facts{Status: 500}, ""},
		"flask":                        {Facts{Status: 500, Answer: `{"detail":"IntegrityError: x"}`}, "IntegrityError: x"},
		"fastapi validation":           {Facts{Status: 422, Answer: `{"detail":[{"type":"missing","loc":["body","sku"],"msg":"Field required"}]}`}, "Field required"},
		"spring":                       {Facts{Status: 500, Answer: `{"timestamp":"2026-11-25T13:14:33.123+00:00","status":500,"error":"Internal Server Error","message":"could not execute","path":"/"}`}, "could not execute"},
		"spring, cut within the trace": {Facts{Status: 500, Answer: `{"status":500,"error":"Internal Server Error","trace":"java.lang.IllegalStateException: boom\r\n\tat com.acme.`}, "java.lang.IllegalStateException: boom\r\n\tat com.acme."},
		"nest":                         {Facts{Status: 400, Answer: `{"statusCode":400,"message":["email must be an email","x"],"error":"Bad Request"}`}, "email must be an email"},
		"express":                      {Facts{Status: 500, Answer: "<!DOCTYPE html>\n<html><head><title>Error</title></head><body>\n<pre>Error: can&#39;t book<br> &nbsp; at x</pre>"}, "Error: can't book"},
		"nested":                       {Facts{Status: 500, Answer: `{"error":{"code":"P1","message":"no such table","innererror":{"message":"x"}}}`}, "no such table"},
		"graphql":                      {Facts{Status: 500, Answer: ` [{"message":"no field"}]`}, "no field"},
		"dotnet":                       {Facts{Status: 500, Answer: "{\\x0d\n  \"Message\": \"An error has occurred.\"\\x0d\n}"}, "An error has occurred."},
		"not a string":                 {Facts{Status: 500, Answer: `{"error":true,"message":7,"detail":null,"title":{},"exception":[],"msg":"why"}`}, "why"},
		"the request, repeated":        {Facts{Status: 422, Answer: `{"detail":[{"type":"missing","loc":["body","name"],"msg":"Field required","input":{"title":"Harry Potter","message":"Dear Bob"}}]}`}, "Field required"},
		"the request before a reason":  {Facts{Status: 500, Answer: `{"request":{"description":"customer text"},"reason":"disk full"}`}, "disk full"},
		"a sentence behind a word":     {Facts{Status: 500, Answer: `{"ok": false, "state": "failed", "why": "disk full"}`}, `{ok: false, state: "failed", why: disk full}`},
		"an array of texts":            {Facts{Status: 500, Answer: `["no stock","x"]`}, "no stock"},
		"a line end within a text":     {Facts{Status: 500, Answer: "{\"message\": \"no\nstock\"}"}, "no"},
		"spring validation":            {Facts{Status: 500, Answer: `{"message":"Internal Server Error","errors":[{"field":"mail","defaultMessage":"must not be null"}]}`}, "must not be null"},
		"quoted JSON":                  {Facts{Status: 500, Answer: `{"request":"{\"error\":\"x\"}","message":"no stock"}`}, "no stock"},
		"a string":                     {Facts{Status: 500, Answer: `"order 17 is closed"`}, "order 17 is closed"},
		"two texts in quotes":          {Facts{Status: 500, Answer: `"a" is not "b"`}, `"a" is not "b"`},
		"asp.net":                      {Facts{Status: 500, Problem: Problem{Type: "https://tools.ietf.org/html/rfc9110#section-15.6.1", Title: "An error occurred while processing your request.", Detail: "order 17 is closed"}}, "order 17 is closed"},
		"not a number":                 {Facts{Status: 500, Answer: `{"score": NaN, "error": "no stock"}`}, "no stock"},
		"django rest framework":        {Facts{Status: 400, Answer: `{"sku":["This field is required."]}`}, "{sku:[This field is required.]}"},
		"looks like json":              {Facts{Status: 500, Answer: "[ERROR] no stock\nmore"}, "[ERROR] no stock"},
		"text":                         {Facts{Status: 500, Answer: "\ufeff\n\n  panic: nil map\\x0d\n\ngoroutine 1"}, "panic: nil map\r"},
		"python":                       {Facts{Status: 500, Answer: "Traceback (most recent call last):\n  File \"x\", line 1\n    raise\nKeyError: 'sku'\n"}, "KeyError: 'sku'"},
		"python, cut":                  {Facts{Status: 500, Answer: "Traceback (most recent call last):\n  File \"x\", li"}, "Traceback (most recent call last):"},
		"tomcat":                       {Facts{Status: 500, Answer: "<html><head><title>HTTP Status 500 – Internal Server Error</title><style>h1{}</style></head><body><pre>java.lang.Error: x\n\tat"}, "java.lang.Error: x\n\tat"},
		"xml":                          {Facts{Status: 500, Answer: "<?xml version=\"1.0\"?><Error><Message>Slow Down</Message"}, "   Slow Down "},
		"a script that is cut":         {Facts{Status: 500, Answer: "<p>no stock<script>if (a<b) {}"}, "no stock"},
		"not text":                     {Facts{Status: 500, Answer: "(not text: image/png, 12 bytes)"}, "(not text: image/png, 12 bytes)"},
	} {
		if got := c.f.Why(); strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNormaliseErrors: two reports of one bug have one text, and different bugs have different ones.
func TestNormaliseErrors(t *testing.T) {
	t.Parallel()
	for want, reports := range map[string][]string{
		`duplicate key value violates unique constraint … DETAIL: Key (email)=(…) already exists.`: {
			"duplicate key value violates unique constraint \"users_email_key\"\nDETAIL:  Key (email)=(a@b) already exists.",
			"duplicate key value violates unique constraint \"users_email_key\"\nDETAIL:  Key (email)=(c.d+e@example.org) already exists."},
		"duplicate key (email)=(…)":                       {"duplicate key (email)=(a@b)", "duplicate key (email)=(c@d)"},
		"Duplicate entry … for key …":                     {"Duplicate entry 'a@b.c' for key 'users.email'", "Duplicate entry 'it''s x' for key 'users.email'"},
		"customer … is gone":                              {"customer a.b@shop.example is gone", "customer 17 is gone", "customer 'x y' is gone", "customer `z` is gone", "customer “z” is gone"},
		"no row …":                                        {"no row 550e8400-e29b-41d4-a716-446655440000", "no row 123E4567-e89b-12d3-a456-426614174000", "no row 507f1f77bcf86cd799439011", "no row ae91993f"},
		"could not book com.acme.Order@…":                 {"could not book com.acme.Order@1b6d3586", "could not book com.acme.Order@ae91993f"},
		"open …: permission denied":                       {"open /var/data/alice/in.csv: permission denied", "open /var/data/bob/out.csv: permission denied"},
		"expired on … at the bank":                        {"expired on Wed, 25 Nov 2026 14:00:00 GMT at the bank", "expired on Thu Nov 26 14:00:00 2026 at the bank", "expired on 1 Dec 2026 at the bank"},
		"no handler for /orders/created":                  {"no handler for /orders/created"},
		"at … the lock was lost":                          {"at 2026-11-25T13:14:33.123Z the lock was lost", "at 2026-11-25 13:14:33,7+01:00 the lock was lost", "at 2026-11-25T13:14:33 the lock was lost"},
		"GET http://billing/… answered …":                 {"GET http://billing/invoices/17?x=y#z answered 500", "GET http://billing/other answered 503"},
		"GET http://stock/… answered …":                   {"GET http://stock/invoices/17 answered 500"},
		"dial tcp …: connection refused":                  {"dial tcp 10.0.0.7:8080: connection refused", "dial tcp 10.0.121.7:80: connection refused"},
		"invalid payload: …":                              {`invalid payload: "{\"a\":1} is cut`, `invalid payload: "{\"b\":[2,3]}"`},
		"index out of range [… with length":               {"index out of range [5 with length", "index out of range [77 with length"},
		"object at … of cus_…":                            {"object at 0x7f8a2c3d of cus_NffrFeUfNV2Hib", "object at 0x12 of cus_4QFHdxxyz7Zu8"},
		"sha… of line… differs":                           {"sha256 of line2 differs"},
		"(psycopg….errors.UniqueViolation) duplicate key": {"(psycopg2.errors.UniqueViolation) duplicate key"},
	} {
		for _, r := range reports {
			if got := normalise(r); got != want {
				t.Errorf("%q: %q, want %q", r, got, want)
			}
		}
	}
	long := `"` + strings.Repeat("x", maxVarying) + `" `
	if normalise(long+"a") != normalise(long+"b") { // what takes more time than it is worth is left out
		t.Error("the end of a long error counts")
	}
	if n := normalise(strings.Repeat("é ", 500)); len(n) > maxNormal+len("…") || !strings.HasSuffix(n, "…") {
		t.Errorf("%d bytes", len(n))
	}
}

// TestGroupsOfAnswers: seventy failures of five bugs with one status and one key are five groups, whatever the app is
// written in.
func TestGroupsOfAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(text string, i int) string{
		"flask": func(s string, i int) string { return fmt.Sprintf(`{"detail": %q, "request": "%d"}`, s, i) },
		"spring": func(s string, i int) string {
			return fmt.Sprintf(`{"timestamp":"2026-11-25T13:14:%02d.5Z","status":500,"error":"Internal Server Error","message":%q,"path":"/"}`, i%60, s)
		},
		"go": func(s string, i int) string { return fmt.Sprintf("%s\nrequest %d\n", s, i) },
		"python": func(s string, i int) string {
			return fmt.Sprintf("Traceback (most recent call last):\n  File \"x%d\"\nError: %s", i, s)
		},
	} {
		counts := map[string]int{}
		for i := range 70 {
			text := []string{
				fmt.Sprintf("duplicate key (email)=(user%d@example.org)", i), fmt.Sprintf("duplicate key (phone)=(%d)", i),
				fmt.Sprintf(`order "A-%d" is closed`, i), fmt.Sprintf("order %08x is not known", i*7919), fmt.Sprintf("no route to http://stock/items/%d", i),
			}[i%5]
			m := Message{Facts: Facts{Reason: "max_retries", Status: 500, RoutingKey: "order.created", Answer: answer(text, i)}}
			counts[m.Group().Problem]++
		}
		if len(counts) != 5 {
			t.Errorf("%s: %d groups: %v", name, len(counts), counts)
		}
		for problem, n := range counts {
			if n != 14 {
				t.Errorf("%s: %d of %q", name, n, problem)
			}
		}
	}
}

// TestGroupKeepsProblemTypes: a type is an identifier, and stays as it is.
func TestGroupKeepsProblemTypes(t *testing.T) {
	t.Parallel()
	m := Message{Facts: Facts{Problem: Problem{Type: "https://example.test/p/17", Title: "Gone"}}}
	if got := m.Group().Problem; got != m.Problem.Type {
		t.Error(got)
	}
	if m.Detail = "no 17"; m.Group().Problem != "no …" {
		t.Error(m.Group().Problem)
	}
}

func FuzzWhy(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"x"}}`, `{"error":"a\u00`, `{"error":"a\\`, `[[{"detail":`, "<title>x</title>", "<pre>", "Traceback (most recent call last):\n\nE", `"`, "{\"\\x0d\n", "\ufeff{",
	} {
		f.Add(s, 500)
	}
	f.Fuzz(func(t *testing.T, s string, status int) {
		m := Message{Facts: Facts{Status: status, Answer: valid(s)}}
		if got := m.Group().Problem; valid(got) != got || len(got) > maxNormal+len("…") || strings.ContainsAny(got, "\n\t") {
			t.Errorf("%q: %q", s, got)
		}
	})
}
