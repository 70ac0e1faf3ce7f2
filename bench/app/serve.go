package main

import (
	"bytes"
	"io"
	"net"
	"strconv"
)

const (
	bufferSize = 64 << 10
	timeSize   = 32 // of the time a body may begin with, and more
)

func (b *books) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.connections.Add(1)
		go b.serve(c)
	}
}

var (
	headEnd  = []byte("\r\n\r\n")
	answer   = []byte("HTTP/1.1 204 No Content\r\n\r\n")
	failed   = []byte("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
	lengthIs = []byte("\r\nContent-Length: ")
	numberIs = []byte("\r\nAmqp-Message-Id: ")
	timeIs   = []byte(`{"t":`)
	hangs    = []byte("POST /hang ") // never answered, and not in the books
)

// serve answers one request after the other: the clients do not pipeline.
func (b *books) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, bufferSize)
	var whole []byte // the body of a request of several messages
	var err error
	for {
		have, head := 0, -1
		for head < 0 {
			if have == len(buf) {
				return // no head is that long
			}
			n, err := c.Read(buf[have:])
			if err != nil {
				return
			}
			have += n
			head = bytes.Index(buf[:have], headEnd)
		}
		if bytes.HasPrefix(buf, []byte("GET ")) { // a probe
			if _, err := c.Write(answer); err != nil {
				return
			}
			continue
		}
		if bytes.HasPrefix(buf, hangs) {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		length, number, published := field(buf[:head+2], lengthIs), field(buf[:head+2], numberIs), int64(0)
		begin := head + len(headEnd)
		if length < 0 || begin+timeSize > len(buf) {
			b.arrive(-1, 0)
			b.inflight.Add(-1)
			return // where the next request begins is unknown too
		}
		if item := b.seen.Load().item; len(item) > 0 {
			if whole, err = rest(c, buf[begin:have], int(length), whole); err != nil {
				return
			}
			b.arriveAll(whole, item)
			b.answerable()
			if _, err := c.Write(answer); err != nil {
				return
			}
			continue
		}
		for int64(have-begin) < min(length, timeSize) { // the body may come behind its head
			n, err := c.Read(buf[have:])
			if err != nil {
				return
			}
			have += n
		}
		if body := buf[begin:have]; b.latency.Load() && bytes.HasPrefix(body, timeIs) {
			published = digits(body[len(timeIs):])
		}
		for left := length - int64(have-begin); left > 0; {
			n, err := c.Read(buf[:min(int64(len(buf)), left)])
			if err != nil {
				return
			}
			left -= int64(n)
		}
		b.arrive(number, published)
		b.answerable()
		text := answer
		if b.fails(number) {
			text = failed
		}
		if _, err := c.Write(text); err != nil {
			return
		}
	}
}

// rest reads the body that has begun with have to its end, into the memory of one before.
func rest(c net.Conn, have []byte, length int, memory []byte) ([]byte, error) {
	if cap(memory) < length {
		memory = make([]byte, length)
	}
	n := copy(memory[:length], have)
	_, err := io.ReadFull(c, memory[n:length])
	return memory[:length], err
}

// field is the number behind name in a request's head, -1 when there is none.
func field(head, name []byte) int64 {
	_, value, found := bytes.Cut(head, name)
	if !found {
		return -1
	}
	return digits(value)
}

// digits reads the number that b begins with.
func digits(b []byte) int64 {
	i := 0
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(string(b[:i]), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
