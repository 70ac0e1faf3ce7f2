package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

const typicalAnswer = "HTTP/1.1 204 No Content\r\nServer: app/1.0\r\nDate: Wed, 01 Jul 2026 12:00:00 GMT\r\n" +
	"X-Request-Id: 0af7651916cd43dd8448eb211c80319c\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n"

// trickle gives out a few bytes at a time: where a read ends must make no difference.
type trickle struct {
	b    []byte
	step int
}

func (r *trickle) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.b)
	r.b = r.b[n:]
	return n, nil
}

// FuzzAnswer compares the reader with net/http's. Both must agree on the status of every answer that net/http accepts,
// except where ours is stricter on purpose: see stricter. Where ours says that the connection may be used again,
// net/http must have found the end of the answer at the same byte and not want to close either. What an answer costs is
// bounded, and without memory for a large one the status is the same wherever the answer is taken.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		typicalAnswer,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nrest",
		"HTTP/1.1 204\nA: b\n c\n\n", "HTTP/1.1 304 x\r\nContent-Length: 4\r\n\r\nHTTP", "HTTP/1.1 101 x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: a, Close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\nx",
		"HTTP/1.1 422 x\r\nContent-Type: application/problem+json\r\nContent-Length: 13\r\nRetry-After: 7\r\nAmqp-Reason: r\r\nAmqp-Disposition: park\r\n\r\n{\"title\":\"T\"}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 500 x\r\nContent-Type: application/problem+json\r\n\r\n{" + strings.Repeat(`"a":0,`, 12000) + `"title":"T"}`,
		"HTTP/1.1 200 x\r\nX: " + strings.Repeat("x", 60000) + "\r\n\r\n{\"status\":\"" + strings.Repeat(`\u0041`, 10000) + `"}`,
		"HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "220 mail\r\n", "",
	} {
		f.Add([]byte(seed), uint8(255))
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, step uint8) {
		x := NewExchange(content{Keep})
		defer x.End()
		a := &x.Answer
		src := &trickle{bytes.Clone(raw), int(step) + 1}
		err := a.Read(src, x.Header)
		wantKnownError(t, err)
		if err == nil && (a.Status < 0 || a.Status > 999 || len(a.Body) > MaxBody) {
			t.Fatalf("status %d, %d bytes", a.Status, len(a.Body))
		}
		for _, use := range []Use{Keep, Need} {
			for _, limit := range []int{1, 2 * largeAnswer} {
				within, failed := readWithin(t, bytes.Clone(raw), int(step)+1, limit, use)
				if use == Keep || !errors.Is(failed, errCutShort) { // only where the body is a part of the answer
					wantKnownError(t, failed)
				}
				if use == Keep && failed == nil && (err != nil || within.Status != a.Status) {
					t.Fatalf("with %d bytes status %d, without a limit %d (%v)", limit, within.Status, a.Status, err)
				}
			}
		}

		theirs, rest := readReference(raw)
		switch {
		case theirs == nil:
			// Ours may accept more, an unknown transfer coding for one, but not twice on a connection.
			if err == nil && a.Reusable && !bytes.Contains(bytes.ToLower(raw), []byte("trailer:")) {
				t.Fatalf("ours would use the connection again after status %d, net/http refuses the answer", a.Status)
			}
			return
		case err != nil:
			if !stricter(raw) {
				t.Fatalf("net/http reads %d, ours fails: %v", theirs.StatusCode, err)
			}
			return
		case a.Status != theirs.StatusCode:
			t.Fatalf("net/http reads status %d, ours %d", theirs.StatusCode, a.Status)
		}
		if !a.Reusable {
			return
		}
		if _, err := io.Copy(io.Discard, theirs.Body); err != nil || theirs.Close || rest.Buffered() != len(src.b) {
			t.Fatalf("ours would use the connection again with %d bytes left; net/http: %v, close %v, %d bytes left",
				len(src.b), err, theirs.Close, rest.Buffered())
		}
	})
}

// readReference reads the final answer as net/http's transport does: interim ones are skipped.
func readReference(raw []byte) (*http.Response, *bufio.Reader) {
	r := bufio.NewReaderSize(bytes.NewReader(raw), max(16, len(raw)))
	for {
		answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			return nil, r
		}
		if answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, r
		}
	}
}

// stricter names every reason for which ours refuses what net/http accepts: a version that is not HTTP/1.x, a status
// with a sign, a field name with a space, and more than 64 KiB before the body.
func stricter(raw []byte) bool {
	if len(raw) > maxHead {
		return true
	}
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			return false
		}
		line := bytes.TrimSuffix(raw[:i], []byte{'\r'})
		version, status, _ := bytes.Cut(line, []byte{' '})
		status = bytes.TrimLeft(status, " ")
		if !bytes.HasPrefix(version, []byte(protocol)) || len(status) == 0 || !digit(status[0]) {
			return true
		}
		end, _ := headEnd(raw, 0)
		for field := range bytes.Lines(raw[i+1 : max(i+1, end)]) {
			if name, _, isField := bytes.Cut(field, []byte{':'}); isField && !blank(field[0]) && bytes.IndexByte(name, ' ') >= 0 {
				return true
			}
		}
		// Only an interim answer lets a second status line decide.
		if status[0] != '1' || end == 0 {
			return false
		}
		raw = raw[end:]
	}
	return false
}

func wantKnownError(t *testing.T, err error) {
	var malformed MalformedError
	if err != nil && err != io.EOF && !errors.As(err, &malformed) {
		t.Fatalf("unexpected error %v", err)
	}
}
