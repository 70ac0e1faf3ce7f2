package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// untilEnd are the rows that end with the connection.
var untilEnd = []string{
	"96 unknown coding", "98 HTTP/1.0 with chunks", "body until the end of connection", "103 100, then close", "93 199, then close",
	"half a status line", "half a header block", "nothing",
}

// TestHostileAnswers: rows 93 to 114 of the bad inputs that are one answer, or none. conns is the number of connections two
// messages in a row take: 1 if the connection may be used again.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, row := range map[string]struct {
		answer  string
		status  int
		failure message.Failure
		says    string
		conns   int
	}{
		"94 204 with a body":                  {"HTTP/1.1 204 No Content\r\n\r\nhello", 204, 0, "", 2},
		"94 204 that announces a body":        {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, 0, "", 2},
		"94 204 with length 0":                {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, 0, "", 1},
		"95 two lengths that differ":          {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0, message.FailureMalformed, "header line", 2},
		"two dispositions that differ":        {"HTTP/1.1 200 OK\r\nAmqp-Disposition: ack\r\nAmqp-Disposition: park\r\nContent-Length: 0\r\n\r\n", 0, message.FailureMalformed, "two different Amqp-Disposition", 2},
		"a disposition and another word":      {"HTTP/1.1 200 OK\r\nAmqp-Disposition: x\r\nAmqp-Disposition: park\r\nContent-Length: 0\r\n\r\n", 0, message.FailureMalformed, "two different Amqp-Disposition", 2},
		"dispositions that a proxy joined":    {"HTTP/1.1 200 OK\r\nAmqp-Disposition: ack, park\r\nContent-Length: 0\r\n\r\n", 0, message.FailureMalformed, "two different Amqp-Disposition", 2},
		"one disposition joined to its like":  {"HTTP/1.1 200 OK\r\nAmqp-Disposition: ack, Ack\r\nContent-Length: 0\r\n\r\n", 200, 0, "", 1},
		"two dispositions in an interim":      {"HTTP/1.1 103 Early\r\nAmqp-Disposition: ack\r\nAmqp-Disposition: park\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, "", 1},
		"95 two lengths that agree":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", 200, 0, "", 2},
		"95 length with a sign":               {"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab", 0, message.FailureMalformed, "header line", 2},
		"96 length and chunks":                {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, 0, "", 2},
		"96 unknown coding":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 200, 0, "", 2},
		"97 HTTP/0.9 junk":                    {"<html>hello</html>", 0, message.FailureMalformed, "not HTTP/1", 2},
		"98 HTTP/1.0 that says keep-alive":    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, 0, "", 2},
		"98 HTTP/1.0 with chunks":             {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, 0, "", 2},
		"98 close":                            {"HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close\r\nContent-Length: 2\r\n\r\nok", 200, 0, "", 2},
		"98 HTTP/1.2 is taken for 1.1":        {"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, 0, "", 1},
		"99 status line of 1 MiB":             {"HTTP/1.1 200 " + strings.Repeat("x", 100<<10) + "\r\n\r\n", 0, message.FailureMalformed, "64 KiB", 2},
		"99 header block of 2 MiB":            {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 100) + "\r\n", 0, message.FailureMalformed, "64 KiB", 2},
		"100 chunks without end":              {chunked + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 1000), 200, 0, "", 2},
		"100 one byte in each chunk":          {chunked + strings.Repeat("1\r\nx\r\n", 1000) + "0\r\n\r\n", 200, 0, "", 1},
		"100 chunk size that is not a number": {chunked + "zz\r\n", 200, 0, "", 2},
		"100 chunk longer than its size":      {chunked + "1\r\nxy\r\n0\r\n\r\n", 200, 0, "", 2},
		"100 chunk with an extension":         {chunked + "1;a=b\r\nx\r\n0\r\n\r\n", 200, 0, "", 1},
		"101 trailer":                         {chunked + "0\r\nX: y\r\n\r\n", 200, 0, "", 2},
		"102 100 before the answer":           {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + apptest.Status(204), 204, 0, "", 1},
		"102 100 ten thousand times":          {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10000) + apptest.Status(204), 0, message.FailureMalformed, "64 KiB", 2},
		"102 101 is an answer":                {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", 101, 0, "", 2},
		"103 100, then close":                 {"HTTP/1.1 100 Continue\r\n\r\n", 0, message.FailureReset, "closed the connection", 2},
		"93 199, then close":                  {"HTTP/1.1 199 Odd\r\n\r\n", 0, message.FailureReset, "closed the connection", 2},
		"half a status line":                  {"HTTP/1.1 2", 0, message.FailureReset, "closed the connection", 2},
		"half a header block":                 {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 0, message.FailureReset, "closed the connection", 2},
		"nothing":                             {"", 0, message.FailureReset, "closed the connection", 2},
		"109 error body of 10 MiB":            {fmt.Sprintf("HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n", 10<<20) + strings.Repeat("\x1b[31m</script>\r\n", 7000), 500, 0, "", 2},
		"109 body of exactly 64 KiB":          {fmt.Sprintf("HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n", http1.MaxBody) + strings.Repeat("x", http1.MaxBody), 500, 0, "", 1},
		"110 two answers to one message":      {apptest.Status(204) + apptest.Status(500), 204, 0, "", 2},
		"112 HTTP/2 settings frame":           {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", 0, message.FailureMalformed, "not HTTP/1", 2},
		"lines that end in LF only":           {"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, 0, "", 1},
		"folded header":                       {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length:\r\n\t2\r\n\r\nok", 200, 0, "", 1},
		"first header folded":                 {"HTTP/1.1 200 OK\r\n X: a\r\n\r\n", 0, message.FailureMalformed, "header line", 2},
		"header without a colon":              {"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", 0, message.FailureMalformed, "header line", 2},
		"space before the colon":              {"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", 0, message.FailureMalformed, "header line", 2},
		"space within a name":                 {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAmqp Disposition: park\r\n\r\n", 0, message.FailureMalformed, "header line", 2},
		"space in an interim answer":          {"HTTP/1.1 103 Early\r\nA : b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, message.FailureMalformed, "header line", 2},
		"status line without a reason":        {"HTTP/1.1 204\r\n\r\n", 204, 0, "", 1},
		"status of four digits":               {"HTTP/1.1 2000 OK\r\n\r\n", 0, message.FailureMalformed, "status line", 2},
		"status missing":                      {"HTTP/1.1\r\n\r\n", 0, message.FailureMalformed, "status line", 2},
		"body until the end of connection":    {"HTTP/1.1 200 OK\r\n\r\nhello", 200, 0, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := apptest.Listen(t, func(c *apptest.Conn) {
				for {
					if _, err := c.Next(); err != nil {
						return
					}
					c.Send(row.answer)
					if slices.Contains(untilEnd, name) {
						return
					}
				}
			})
			target := newTarget(t, s.URL)
			for range 2 {
				o := dispatch(t, target, sample())
				if row.failure != message.FailureNone {
					wantFailure(t, o, row.failure, row.says)
				} else {
					wantStatus(t, o, row.status)
				}
			}
			wantSeen(t, s, row.conns, 2)
		})
	}
}

// Row 93, B8: whatever three digits say is passed on as a fact.
func TestEveryStatusIsAFact(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 99, 101, 200, 299, 300, 301, 302, 303, 304, 305, 306, 307, 308, 400, 418, 425, 429, 451, 499, 500, 503, 599, 600, 999} {
		wantStatus(t, answered(t, apptest.Status(status)), status)
	}
}

// Row 104: after the headers nothing changes the status any more.
func TestBrokenBodyDoesNotChangeTheStatus(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"B9 shorter than its length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"chunk cut":                  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
		"no chunk at all":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, scripted(t, func(c *apptest.Conn) {
				if _, err := c.Next(); err == nil {
					c.Send(answer)
					_ = c.Reset()
				}
			}), 200)
		})
	}
}

// Row 110: an answer that comes without a request must not be taken for the next message's.
func TestUnsolicitedBytesPoisonTheConnection(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{}, 10)
	script := func(c *apptest.Conn) {
		if _, err := c.Next(); err != nil {
			return
		}
		c.Send(apptest.Status(204))
		c.Send(apptest.Status(500))
		sent <- struct{}{}
		c.WaitClosed()
	}
	plain := apptest.Listen(t, script)
	secure, trust := apptest.ListenTLS(t, script)
	for _, s := range []*apptest.Server{plain, apptest.ListenUnix(t, script), secure} {
		target := newTarget(t, s.URL, func(o *Options) { o.TLS = trust })
		for range 3 {
			wantStatus(t, dispatch(t, target, sample()), 204)
			if t.Failed() {
				return // a second request on the first connection would wait for ever
			}
			<-sent
		}
		wantSeen(t, s, 3, 3)
	}
}

// The same with TLS records that came in one segment: the second is out of the socket's sight.
func TestUnsolicitedRecordPoisonsATLSConnection(t *testing.T) {
	t.Parallel()
	s, trust := apptest.ListenTLS(t, func(c *apptest.Conn) {
		for {
			if _, err := c.Next(); err != nil {
				return
			}
			c.Together(apptest.Status(204), apptest.Status(500))
		}
	})
	target := newTarget(t, s.URL, func(o *Options) { o.TLS = trust })
	wantStatuses(t, target, 5, 204)
	wantSeen(t, s, 5, 5)
}
