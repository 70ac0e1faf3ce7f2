package http1

import (
	"strings"
	"testing"
)

// endless gives out head and then rest for ever.
type endless struct {
	head, rest string
	read       int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.head == "" {
		e.head = e.rest
	}
	n := copy(p, e.head)
	e.head = e.head[n:]
	e.read += n
	return n, nil
}

// However long an answer is, no more is read of it than the two limits and what a buffer holds beyond.
func TestAnswersAreReadWithinBounds(t *testing.T) {
	t.Parallel()
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, e := range map[string]*endless{
		"100 chunks":            {head: chunked, rest: "400\r\n" + strings.Repeat("x", 1024) + "\r\n"},
		"small chunks":          {head: chunked, rest: "1\r\nx\r\n"},
		"one chunk of 64 KiB":   {head: chunked + "10000\r\n", rest: "x"},
		"chunk extension":       {head: chunked + "1;", rest: "x"},
		"101 trailers":          {head: chunked + "0\r\n", rest: "X: y\r\n"},
		"until the end":         {head: "HTTP/1.1 200 OK\r\n\r\n", rest: "x"},
		"needed, chunks":        {head: chunked, rest: "400\r\n" + strings.Repeat("x", 1024) + "\r\n"},
		"needed, until the end": {head: "HTTP/1.1 200 OK\r\n\r\n", rest: "x"},
		"a length of 1 TiB":     {head: "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n", rest: "x"},
		"interim answers":       {rest: "HTTP/1.1 100 Continue\r\n\r\n"},
		"headers":               {head: "HTTP/1.1 200 OK\r\n", rest: "X: y\r\n"},
		"99 status line":        {head: "HTTP/1.1 200 ", rest: "x"},
	} {
		x := NewExchange(content{Skip})
		if strings.Contains(name, "needed") {
			x.Header = content{Need}
		}
		err := x.Answer.Read(e, x.Header)
		if failed := err != nil; failed != (err == errTooLong) {
			t.Errorf("%s: %v", name, err)
		}
		if limit := maxHead + MaxBody + 8<<10; e.read > limit || cap(x.Answer.Body) > limit {
			t.Errorf("%s: read %d bytes, kept %d", name, e.read, cap(x.Answer.Body))
		}
		if x.Answer.Reusable {
			t.Errorf("%s: the connection would be used again", name)
		}
		x.End()
	}
}

// stalls is a connection that stays open and silent after its first bytes.
type stalls struct {
	t *testing.T
	*strings.Reader
}

func (s stalls) Read(p []byte) (int, error) {
	if s.Len() == 0 {
		s.t.Error("the rest of the body is waited for")
	}
	return s.Reader.Read(p)
}

// Of a failing answer the beginning is kept. The rest of a body that is too long is not waited for: an app that stalls
// must not hold an attempt for it.
func TestTheRestOfALongBodyIsNotAwaited(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a length":     "Content-Length: 70000\r\n\r\n",
		"a chunk":      "Transfer-Encoding: chunked\r\n\r\n11170\r\n",
		"a late chunk": "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n10000\r\n",
	} {
		for _, sent := range []int{smallAnswer, 5000} {
			x := NewExchange(content{Begin})
			src := stalls{t, strings.NewReader("HTTP/1.1 200 OK\r\n" + head + strings.Repeat("x", sent))}
			if err := x.Answer.Read(src, x.Header); err != nil || len(x.Answer.Body) != smallAnswer || x.Answer.Whole {
				t.Errorf("%s, %d bytes: %v, kept %d", name, sent, err, len(x.Answer.Body))
			}
			if x.Answer.Size < MaxBody || x.Answer.Reusable {
				t.Errorf("%s: %d bytes", name, x.Answer.Size)
			}
			x.End()
		}
	}
}
