package dispatch

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"sidecar/internal/apptest"
)

// B17: the name stands for two addresses and the app listens on one of them.
func TestLocalhostFindsAnAppOnIPv4Only(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if url == s.URL {
		t.Fatalf("the app listens on %s", s.URL)
	}
	for range 5 {
		wantStatus(t, dispatch(t, newTarget(t, url), sample()), 204)
	}
}

// B13: an answer of a few kilobytes that says it is ten megabytes of zeros is taken as it comes.
func TestCompressedAnswerIsNotInflated(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := w.Write(make([]byte, 4<<20)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	s := apptest.Listen(t, apptest.Answer(apptest.Full(500, bomb.String(), "Content-Type: application/problem+json", "Content-Encoding: gzip")))
	target := newTarget(t, s.URL)
	for range 3 {
		o := dispatch(t, target, sample())
		wantStatus(t, o, 500)
		if o.Problem != nil {
			t.Errorf("a problem was read: %+v", o.Problem)
		}
	}
	wantSeen(t, s, 1, 3) // the body is read to its end
}
