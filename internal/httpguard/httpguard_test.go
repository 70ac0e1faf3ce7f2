package httpguard

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRefuse: a problem document, with a code only where there is one.
func TestRefuse(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"":     `{"type":"about:blank","title":"Not Found","status":404,"detail":"why"}` + "\n",
		"gone": `{"type":"about:blank","title":"Not Found","status":404,"detail":"why","code":"gone"}` + "\n",
	} {
		w := httptest.NewRecorder()
		Refuse(w, http.StatusNotFound, code, "why")
		if w.Code != http.StatusNotFound || w.Body.String() != want || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("what is no JSON was answered")
		}
	}()
	Answer(httptest.NewRecorder(), http.StatusOK, func() {})
}

// TestSentence: one line, valid, and no longer than people read.
func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one\ntwo": "one; two", "a\xffb": "a\uFFFDb", strings.Repeat("ü", maxDetail): strings.Repeat("ü", maxDetail/2) + "…",
	} {
		if got := Sentence(errors.New(text)); got != want {
			t.Errorf("%.20q: %.40q", text, got)
		}
		if _, err := json.Marshal(want); err != nil {
			t.Error(err)
		}
	}
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9/x", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestCrossSite(t *testing.T) {
	t.Parallel()
	for _, own := range [][]string{{}, {"Origin", "http://127.0.0.1:9"}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		if crossSite(request(own...)) {
			t.Errorf("%v is another site", own)
		}
	}
	for _, other := range [][]string{
		{"Origin", "null"}, {"Origin", "http://127.0.0.1:8"}, {"Origin", "file://127.0.0.1:9"}, {"Origin", "http://127.0.0.1:9", "Origin", "http://127.0.0.1:9"},
		{"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "none", "Sec-Fetch-Site", "cross-site"},
	} {
		if !crossSite(request(other...)) {
			t.Errorf("%v is no other site", other)
		}
	}
}

func TestHasToken(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"Bearer secret": true, "bearer secret": true, "Bearer Secret": false, "Basic secret": false, "secret": false, "Bearer ": false} {
		if HasToken(request("Authorization", value), "secret") != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
	if HasToken(request("Authorization", "Bearer "), "") || HasToken(request(), "") || HasToken(request("Authorization", "Bearer s", "Authorization", "Bearer s"), "s") {
		t.Error("the empty token is accepted, or two tokens are")
	}
	if !overridesMethod(request("X-HTTP-Method", "GET")) || overridesMethod(request()) {
		t.Error("method override")
	}
}
