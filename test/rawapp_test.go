package test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawRequest is one request as bytes on the wire.
type rawRequest struct {
	at    time.Time
	head  string   // request line and header lines, with the empty line
	lines []string // header lines, without CRLF
	body  []byte
	conn  int // number of the connection it came on
	nth   int // receipts of this id so far, from 1
	id    string
}

// values returns the raw values of every line with that name, in any case.
func (r *rawRequest) values(name string) []string {
	var list []string
	for _, l := range r.lines {
		k, v, _ := strings.Cut(l, ":")
		if strings.EqualFold(k, name) {
			list = append(list, strings.TrimPrefix(v, " "))
		}
	}
	return list
}

func (r *rawRequest) value(name string) string {
	if v := r.values(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// rawApp speaks HTTP by hand: it sees every byte of a request and answers any bytes it likes.
type rawApp struct {
	t      testing.TB
	addr   string
	answer func(net.Conn, *rawRequest) (keep bool)
	early  func(net.Conn, *rawRequest) (done bool) // called before the body is read; may be nil

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]int
	count int
	got   []*rawRequest
}

func newRawApp(t testing.TB, answer func(net.Conn, *rawRequest) (keep bool)) *rawApp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &rawApp{t: t, addr: l.Addr().String(), answer: answer, l: l, conns: map[net.Conn]int{}}
	go a.accept()
	t.Cleanup(a.close)
	return a
}

func (a *rawApp) url() string { return "http://" + a.addr + "/" }

func (a *rawApp) close() {
	_ = a.l.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		_ = c.Close()
	}
}

func (a *rawApp) accept() {
	for {
		c, err := a.l.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.count++
		n := a.count
		a.conns[c] = n
		a.mu.Unlock()
		go func() {
			a.converse(c, n)
			_ = c.Close()
			a.mu.Lock()
			delete(a.conns, c)
			a.mu.Unlock()
		}()
	}
}

func (a *rawApp) converse(c net.Conn, n int) {
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		req, err := readHead(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !isNetwork(err) {
				a.t.Errorf("the sidecar sent something that is not HTTP: %v", err)
			}
			return
		}
		req.conn = n
		if a.early != nil && a.early(c, req) {
			return
		}
		length, err := strconv.Atoi(req.value("Content-Length"))
		if err != nil || len(req.values("Content-Length")) != 1 {
			a.t.Errorf("Content-Length is not there exactly once:\n%s", req.head)
			return
		}
		req.body = make([]byte, length)
		if _, err := io.ReadFull(r, req.body); err != nil {
			return
		}
		a.record(req)
		if !a.answer(c, req) {
			return
		}
	}
}

func isNetwork(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, net.ErrClosed)
}

// readHead is strict: a bare CR or LF inside a line or a line without a colon is an error.
func readHead(r *bufio.Reader) (*rawRequest, error) {
	req := &rawRequest{}
	var head bytes.Buffer
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			if first && line == "" {
				return nil, io.EOF
			}
			return nil, err
		}
		text, ok := strings.CutSuffix(line, "\r\n")
		if !ok || strings.ContainsAny(text, "\r\x00") {
			return nil, fmt.Errorf("bare line ending or NUL in %q", line)
		}
		switch {
		case first:
			if !strings.HasPrefix(text, "POST ") || !strings.HasSuffix(text, " HTTP/1.1") {
				return nil, fmt.Errorf("request line %q", text)
			}
		case text == "":
			req.at, req.head, req.id = time.Now(), head.String(), req.value("Amqp-Message-Id")
			return req, nil
		case strings.Index(text, ":") < 1:
			return nil, fmt.Errorf("header line %q", text)
		default:
			req.lines = append(req.lines, text)
		}
	}
}

func (a *rawApp) record(r *rawRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.nth = 1
	for _, g := range a.got {
		if g.id == r.id {
			r.nth++
		}
	}
	a.got = append(a.got, r)
}

func (a *rawApp) seen(id string) []*rawRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*rawRequest
	for _, r := range a.got {
		if r.id == id {
			list = append(list, r)
		}
	}
	return list
}

func (a *rawApp) await(id string, n int) []*rawRequest {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("receipt %d of message %q", n, id), func() bool { return len(a.seen(id)) >= n })
	return a.seen(id)
}

func say(c net.Conn, s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// sayStatus writes a whole answer without a body.
func sayStatus(c net.Conn, status string) bool {
	return say(c, "HTTP/1.1 "+status+" X\r\nContent-Length: 0\r\n\r\n")
}

// reset closes with RST.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
