package brokertest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Peer is the other end of a connection for behaviour that a real broker does not show on demand: it answers the
// handshake, opens channels, and sends the frames of a test. It has no queues and no messages.
type Peer struct {
	Conn net.Conn
	mu   sync.Mutex // one frame at a time

	Mechanism string      // what the client chose; set before the handshake ends
	Headers   chan []byte // content headers received; may be nil
	Consuming chan string // tags of consumers; may be nil
}

// Short encodes a short string.
func Short(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// Long encodes a long string.
func Long(s string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }

// Send writes frames.
func (p *Peer) Send(frames ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range frames {
		if _, err := p.Conn.Write(f); err != nil {
			return err
		}
	}
	return nil
}

// Serve speaks until the connection ends, and offers these mechanisms.
func (p *Peer) Serve(mechanisms string) {
	defer func() { _ = p.Conn.Close() }()
	if _, err := io.ReadFull(p.Conn, make([]byte, 8)); err != nil {
		return
	}
	_ = p.Send(Frame(1, 0, Method(10, 10, []byte{0, 9}, Long(""), Long(mechanisms), Long("en_US"))))
	for {
		kind, channel, payload, err := readFrame(p.Conn)
		switch {
		case err != nil:
			return
		case kind == frameMethod:
			p.answer(channel, payload)
		case kind == frameHeader && p.Headers != nil:
			p.Headers <- payload
		}
	}
}

func (p *Peer) answer(channel uint16, payload []byte) {
	reply := func(class, id uint16, args ...[]byte) { _ = p.Send(Frame(1, channel, Method(class, id, args...))) }
	switch class, id := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]); {
	case class == 10 && id == 11: // start-ok: properties, Mechanism, …
		rest := payload[8+binary.BigEndian.Uint32(payload[4:]):]
		p.Mechanism = string(rest[1 : 1+rest[0]])
		reply(10, 30, []byte{0, 16, 0, 2, 0, 0, 0, 0}) // tune
	case class == 10 && id == 40:
		reply(10, 41, Short("")) // open-ok
	case class == 10 && id == 50:
		reply(10, 51) // close-ok
	case class == 20 && id == 10:
		reply(20, 11, Long("")) // channel.open-ok
	case class == 60 && id == 10:
		reply(60, 11) // qos-ok
	case class == 60 && id == 20:
		tag := payload[6+1+payload[6]:]
		reply(60, 21, tag[:1+tag[0]]) // consume-ok
		if p.Consuming != nil {
			p.Consuming <- string(tag[1 : 1+tag[0]])
		}
	}
}
