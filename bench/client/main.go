// Command client sends requests over a number of connections, each the next one as soon as it has its answer, and says
// how that went. It connects, then waits for SIGUSR1 to begin, so that neither its start nor its connections are
// measured; and it stays until SIGTERM, so that its CPU time can be read.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// plan is what the environment asks for.
type plan struct {
	addr, path   string // host:port, path of a request
	requests     int
	batch        int // messages of a request, as JSON Lines; 0: the body is the message
	body         int // bytes of a message
	connections  int
	contentType  string
	acknowledged string // status of a good answer
}

// report is what the driver reads from standard output. Times are in nanoseconds.
type report struct {
	Begin     int64   `json:"begin"`
	End       int64   `json:"end"`
	Good      int     `json:"good"`
	Latencies []int64 `json:"latencies"`
	Problem   string  `json:"problem,omitempty"` // the first answer that was not good
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func number(name string, into *int) error {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*into = n
	return nil
}

func environment() (*plan, error) {
	p := &plan{addr: os.Getenv("ADDR"), path: os.Getenv("REQUEST_PATH"), contentType: "application/octet-stream",
		acknowledged: "204"}
	err := errors.Join(number("REQUESTS", &p.requests), number("BATCH", &p.batch), number("BODY", &p.body),
		number("CONNECTIONS", &p.connections))
	if p.batch > 0 {
		p.contentType, p.acknowledged = "application/jsonl", "200"
	}
	return p, err
}

func run() error {
	p, err := environment()
	if err != nil {
		return err
	}
	begin, end := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	signal.Notify(end, syscall.SIGTERM)
	conns := make([]*connection, p.connections)
	var d net.Dialer
	for i := range conns {
		c, err := d.DialContext(context.Background(), "tcp", p.addr)
		if err != nil {
			return err
		}
		conns[i] = &connection{Conn: c, plan: p, in: bufio.NewReaderSize(c, 64<<10)}
	}
	if _, err := fmt.Println(`"connected"`); err != nil {
		return err
	}
	select {
	case <-begin:
	case <-end:
		return nil
	}
	out, err := send(conns)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	<-end
	return nil
}

// send shares the requests among the connections.
func send(conns []*connection) (*report, error) {
	out := &report{Begin: time.Now().UnixNano()}
	var next atomic.Int64
	var all errgroup.Group
	for _, c := range conns {
		all.Go(func() error { return c.work(&next) })
	}
	err := all.Wait()
	out.End = time.Now().UnixNano()
	for _, c := range conns {
		out.Latencies = append(out.Latencies, c.latencies...)
		out.Good += c.good
		if out.Problem == "" {
			out.Problem = c.problem
		}
	}
	slices.Sort(out.Latencies)
	return out, err
}

type connection struct {
	net.Conn

	plan      *plan
	in        *bufio.Reader
	request   []byte
	body      []byte
	latencies []int64
	good      int
	problem   string
}

func (c *connection) work(next *atomic.Int64) error {
	for {
		i := int(next.Add(1) - 1)
		if i >= c.plan.requests {
			return nil
		}
		c.write(i)
		begin := time.Now()
		if _, err := c.Write(c.request); err != nil {
			return err
		}
		status, answer, err := c.answer()
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		c.latencies = append(c.latencies, int64(time.Since(begin)))
		c.judge(status, answer)
	}
}

// judge counts messages that were published. In the answer to a batch each has a line.
func (c *connection) judge(status, answer []byte) {
	good := 1
	if c.plan.batch > 0 {
		good = bytes.Count(answer, []byte(`"status":204`))
	}
	if string(status) != c.plan.acknowledged || good < c.plan.batch {
		if c.problem == "" {
			c.problem = fmt.Sprintf("%s %.500s", status, answer)
		}
		if c.plan.batch == 0 {
			return
		}
	}
	c.good += good
}

// write makes the i-th request.
func (c *connection) write(i int) {
	c.body = c.body[:0]
	if c.plan.batch == 0 {
		c.body = append(c.body, bytes.Repeat([]byte{'x'}, c.plan.body)...)
	}
	for j := range c.plan.batch {
		c.body = fmt.Appendf(c.body, `{"exchange":"bench","routing_key":"bench.published","message_id":"%d","body":"`,
			i*c.plan.batch+j)
		c.body = append(c.body, bytes.Repeat([]byte{'x'}, c.plan.body)...)
		c.body = append(c.body, "\"}\n"...)
	}
	c.request = fmt.Appendf(c.request[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n",
		c.plan.path, c.plan.addr, c.plan.contentType, len(c.body))
	if c.plan.batch == 0 {
		c.request = fmt.Appendf(c.request, "Idempotency-Key: %d\r\n", i)
	}
	c.request = append(append(c.request, "\r\n"...), c.body...)
}

// answer reads one answer; what it returns is valid until the next.
func (c *connection) answer() (status, body []byte, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, nil, err
	}
	if len(line) < len("HTTP/1.1 200\r\n") {
		return nil, nil, fmt.Errorf("status line %q", line)
	}
	status = append(status, line[9:12]...)
	length, chunked := 0, false
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return nil, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, nil, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if chunked {
		body, err = c.chunks()
		return status, body, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.in, body)
	return status, body, err
}

// chunks reads a chunked body without trailers.
func (c *connection) chunks() (body []byte, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, err
		}
		at := len(body)
		body = append(body, make([]byte, int(size)+len("\r\n"))...)
		if _, err := io.ReadFull(c.in, body[at:]); err != nil {
			return nil, err
		}
		if body = body[:len(body)-len("\r\n")]; size == 0 {
			return body, nil
		}
	}
}
