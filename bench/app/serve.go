package main

import (
	"bytes"
	"net"
	"strconv"
)

const bufferSize = 64 << 10

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
	lengthIs = []byte("\r\nContent-Length: ")
	numberIs = []byte("\r\nAmqp-Message-Id: ")
	timeIs   = []byte("t=")
)

// serve answers one request after the other: the clients do not pipeline.
func (b *books) serve(c net.Conn) {
	defer c.Close()
	buf := make([]byte, bufferSize)
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
		length := field(buf[:head+2], lengthIs)
		body := buf[head+len(headEnd) : have]
		number, published := field(buf[:head+2], numberIs), int64(0)
		if b.latency.Load() && bytes.HasPrefix(body, timeIs) {
			published = digits(body[len(timeIs):])
		}
		b.begin(number, published)
		for left := length - int64(len(body)); left > 0; {
			n, err := c.Read(buf[:min(int64(len(buf)), left)])
			if err != nil {
				b.inflight.Add(-1)
				return
			}
			left -= int64(n)
		}
		b.answerable()
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// field is the number behind name in a request's head, -1 when there is none.
func field(head, name []byte) int64 {
	i := bytes.Index(head, name)
	if i < 0 {
		return -1
	}
	return digits(head[i+len(name):])
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
