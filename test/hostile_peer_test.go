package test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// hostilePeer accepts connections as a broker and misbehaves in one way. Otherwise it answers each method
// with the success of AMQP 0-9-1 and confirms each publish. It has no queues and no messages: it shows what a peer
// can do to the sidecar, and nothing about how a broker behaves.
type hostilePeer struct {
	addr    string
	mode    mode
	over    chan struct{} // closed at the end of the test
	reached chan struct{} // closed when the peer has misbehaved for the first time
	once    sync.Once
	work    sync.WaitGroup
}

// mode is one way to misbehave.
type mode struct {
	name  string
	flood bool                     // sends without an end: only then the sidecar may use the CPU all the time
	start func(*link)              // replaces everything from the accepted connection on
	on    uint32                   // the method that begins the misbehaviour
	act   func(*link, uint16) bool // what happens then, on that channel; true: in place of the answer
}

// link is one connection of a hostilePeer.
type link struct {
	net.Conn

	peer      *hostilePeer
	write     sync.Mutex
	published map[uint16]uint64 // messages so far on each channel with confirms
	consumer  string            // tag of the consumer
}

// The methods of AMQP 0-9-1 that the modes name: class and number.
const (
	startOk         = 10<<16 | 11
	tuneOk          = 10<<16 | 31
	openVhost       = 10<<16 | 40
	closeConnection = 10<<16 | 50
	openChannel     = 20<<16 | 10
	closeChannel    = 20<<16 | 40
	declareExchange = 40<<16 | 10
	declareQueue    = 50<<16 | 10
	bindQueue       = 50<<16 | 20
	setQos          = 60<<16 | 10
	basicConsume    = 60<<16 | 20
	basicCancel     = 60<<16 | 30
	basicPublish    = 60<<16 | 40
	selectConfirm   = 85<<16 | 10

	noWait = 16 // bit of the flags of both declares: no answer
)

func newHostilePeer(t *testing.T, m mode) *hostilePeer {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &hostilePeer{addr: l.Addr().String(), mode: m, over: make(chan struct{}), reached: make(chan struct{})}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		close(p.over)
		_ = l.Close()
		p.work.Wait()
	})
	return p
}

func (p *hostilePeer) misbehaved() { p.once.Do(func() { close(p.reached) }) }

func (p *hostilePeer) serve(c net.Conn) {
	l := &link{Conn: c, peer: p, published: map[uint16]uint64{}}
	ended := make(chan struct{})
	defer close(ended)
	p.work.Go(func() {
		select {
		case <-p.over:
		case <-ended:
		}
		_ = c.Close()
	})
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		return
	}
	if p.mode.start != nil {
		p.misbehaved()
		p.mode.start(l)
		return
	}
	l.reply(0, 10<<16|10, []byte{0, 9}, long(""), long("PLAIN"), long("en_US"))
	l.read()
}

// read answers until the connection ends.
func (l *link) read() {
	var head [7]byte
	for {
		if _, err := io.ReadFull(l, head[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(l, payload); err != nil {
			return
		}
		if head[0] == 1 {
			l.method(binary.BigEndian.Uint16(head[1:]), binary.BigEndian.Uint32(payload), payload[4:])
		}
	}
}

func (l *link) method(channel uint16, id uint32, args []byte) {
	if id == basicConsume {
		tag := args[3+args[2]:]
		l.consumer = string(tag[1 : 1+tag[0]])
	}
	_, confirming := l.published[channel]
	if id == selectConfirm {
		l.published[channel] = 0
	}
	if id == basicPublish {
		if !confirming { // a check of the topology, in a transaction
			return
		}
		l.published[channel]++
	}
	if m := &l.peer.mode; m.act != nil && m.on == id {
		l.peer.misbehaved()
		if m.act(l, channel) {
			return
		}
	}
	switch id {
	case startOk:
		l.reply(0, 10<<16|30, []byte{0, 0, 0, 2, 0, 0, 0, 0}) // tune: any channel, frames of 131072, no heartbeat
	case openVhost:
		l.reply(0, openVhost+1, short(""))
	case openChannel:
		l.reply(channel, openChannel+1, long(""))
	case declareQueue:
		if name := args[2 : 3+args[2]]; args[2+len(name)]&noWait == 0 {
			l.reply(channel, declareQueue+1, name, make([]byte, 8))
		}
	case declareExchange:
		if kind := args[3+args[2]:]; kind[1+kind[0]]&noWait == 0 {
			l.reply(channel, declareExchange+1)
		}
	case basicConsume:
		l.reply(channel, basicConsume+1, short(l.consumer))
	case basicCancel:
		l.reply(channel, basicCancel+1, args[:1+args[0]])
	case basicPublish:
		l.reply(channel, 60<<16|80, ackArgs(l.published[channel], 0))
	case closeConnection, closeChannel, bindQueue, setQos, selectConfirm, 90<<16 | 10, 90<<16 | 20, 90<<16 | 30: // tx.select, commit, rollback
		l.reply(channel, id+1)
	}
}

// send writes frames as they are.
func (l *link) send(frames ...[]byte) bool {
	l.write.Lock()
	defer l.write.Unlock()
	_, err := l.Write(slices.Concat(frames...))
	return err == nil
}

func (l *link) reply(channel uint16, id uint32, args ...[]byte) { l.send(method(channel, id, args...)) }

// forever writes what next returns, beside the answers, until the connection or the test ends.
func (l *link) forever(next func(n int) []byte) {
	l.peer.work.Go(func() {
		for n := 0; ; {
			b := next(n)
			for n++; len(b) < 16<<10; n++ {
				b = append(b, next(n)...)
			}
			if !l.send(b) {
				return
			}
		}
	})
}

// slowly writes b with a pause behind each byte.
func (l *link) slowly(b []byte) {
	for _, c := range b {
		select {
		case <-l.peer.over:
			return
		case <-time.After(time.Second):
		}
		if !l.send([]byte{c}) {
			return
		}
	}
}

// silent reads and says nothing.
func (l *link) silent() { _, _ = io.Copy(io.Discard, l) }

func frame(kind byte, channel uint16, payload ...[]byte) []byte {
	return brokertest.Frame(kind, channel, payload...)
}

func method(channel uint16, id uint32, args ...[]byte) []byte {
	return frame(1, channel, brokertest.Method(uint16(id>>16), uint16(id), args...))
}

// content is a content header that announces a body of that size, with a table of headers if there is one.
func content(channel uint16, size uint64, headers ...byte) []byte {
	head := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, size)
	if len(headers) == 0 {
		return frame(2, channel, head, []byte{0, 0})
	}
	return frame(2, channel, head, []byte{0x20, 0}, long(string(headers)))
}

func body(channel uint16, size int) []byte { return frame(3, channel, make([]byte, size)) }

func deliver(channel uint16, consumer string, tag uint64) []byte {
	return method(channel, 60<<16|60, short(consumer), binary.BigEndian.AppendUint64(nil, tag), []byte{0}, short("x"), short("k"))
}

func returned(channel uint16) []byte {
	return method(channel, 60<<16|50, []byte{1, 56}, short("NO_ROUTE"), short("x"), short("k"))
}

// announced is the head of a method frame that announces so many bytes; none of them follows.
func announced(size uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{1, 0, 0}, size)
}

func ackArgs(tag uint64, multiple byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, tag), multiple)
}

func short(s string) []byte { return brokertest.Short(s) }
func long(s string) []byte  { return brokertest.Long(s) }

// named is an entry of a table: its name and value, which begins with its type.
func named(name, value string) string { return string(short(name)) + value }

// tinyTables is an array of n empty tables: 5 bytes each on the wire, hundreds in memory.
func tinyTables(n int) string { return "A" + string(long(strings.Repeat("F\x00\x00\x00\x00", n))) }

// deep is a table within a table, n times.
func deep(n int) string {
	value := "V"
	for range n {
		value = "F" + string(long(named("t", value)))
	}
	return value
}
