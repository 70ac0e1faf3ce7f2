package model

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"time"
)

const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xCE

	frameMax = 131072

	heartbeat = 10 * time.Second // what the broker offers; the smaller one counts
)

// server is the broker's end of one connection.
type server struct {
	b        *Broker
	conn     *conn
	r        *bufio.Reader
	number   int
	name     string
	random   *rand.Rand
	channels map[uint16]*channel
	out      []byte // a frame being made
	interval time.Duration
	heard    time.Time
	beat     *time.Timer
	blocked  bool // by the alarm
	gone     bool
}

var errProtocol = errors.New("model: the client broke the protocol")

// Dial connects to the broker. What is random on the connection depends on the broker's seed, on which and on how many
// connections of that name there have been: not on who else dials.
func (b *Broker) Dial(ctx context.Context, name string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: addr{}, Err: syscall.ECONNREFUSED}
	}
	b.dialled[name]++
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, name, b.dialled[name])
	random := rand.New(rand.NewPCG(b.o.Seed, h.Sum64()))
	client, end := pipe(b.o.Latency, random)
	b.last++
	s := &server{
		b: b, conn: end, r: bufio.NewReader(end), number: b.last, name: name, random: random,
		channels: map[uint16]*channel{},
	}
	b.servers[s] = struct{}{}
	go s.run()
	return client, nil
}

// run reads frames until the connection ends.
func (s *server) run() {
	defer s.leave()
	head := make([]byte, 8)
	if _, err := io.ReadFull(s.r, head); err != nil || string(head) != "AMQP\x00\x00\x09\x01" {
		return
	}
	s.start()
	for {
		if _, err := io.ReadFull(s.r, head[:7]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(s.r, payload); err != nil || payload[len(payload)-1] != frameEnd {
			return
		}
		if err := s.frame(head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1]); err != nil {
			return
		}
	}
}

// frame carries one frame out.
func (s *server) frame(kind byte, id uint16, payload []byte) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.heard = time.Now()
	ch := s.channels[id]
	switch kind {
	case frameHeartbeat:
		return nil
	case frameMethod:
		r := &reader{b: payload}
		class, method := r.u16(), r.u16()
		if class == 60 && method == 40 {
			s.waitForAlarm()
		}
		if s.gone {
			return errProtocol
		}
		return s.around(ch, class, method, func() error {
			if id == 0 {
				return s.control(class, method, r)
			}
			return s.channel(id, class, method, r)
		})
	case frameHeader, frameBody:
		if ch == nil || ch.closing {
			return nil
		}
		if !ch.content(kind, payload) {
			return nil
		}
		return s.around(ch, 60, 40, func() error { ch.published(); return nil })
	}
	return errProtocol
}

// around asks the hook before and after a step. A publish is a step when its content is complete, and outside of a
// transaction.
func (s *server) around(ch *channel, class, method uint16, do func() error) error {
	if class == 60 && method == 40 && (ch == nil || ch.pub == nil || ch.tx) {
		return do()
	}
	step := Step{Connection: s.name, Class: class, Method: method}
	effect := s.b.o.Hook(step)
	if ch != nil && ch.pub != nil {
		ch.pub.withhold, ch.pub.nack = effect == Withhold, effect == Nack
	}
	if s.struck(effect) {
		return errProtocol
	}
	if err := do(); err != nil {
		return err
	}
	step.After = true
	if s.struck(s.b.o.Hook(step)) {
		return errProtocol
	}
	return nil
}

// struck carries out what the hook does to the connection, and reports whether it is over.
func (s *server) struck(e Effect) bool {
	switch e {
	case Cut:
		s.cut()
		return true
	case Freeze:
		s.conn.freeze()
	}
	return s.gone
}

func (s *server) start() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	capabilities := Table{}
	for _, c := range []string{"publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"per_consumer_qos"} {
		capabilities[c] = true
	}
	b := appendTable([]byte{0, 9}, Table{"product": "model", "version": s.b.o.Version.String(),
		"capabilities": capabilities})
	s.method(0, 10, 10, appendLong(b, "PLAIN"), appendLong(nil, "en_US"))
}

// control carries out a method of the connection itself.
func (s *server) control(class, method uint16, r *reader) error {
	if class != 10 {
		return errProtocol
	}
	switch method {
	case 11: // start-ok
		tune := binary.BigEndian.AppendUint32([]byte{7, 255}, frameMax)
		s.method(0, 10, 30, binary.BigEndian.AppendUint16(tune, uint16(heartbeat/time.Second)))
	case 31: // tune-ok
		_, _ = r.u16(), r.u32()
		s.interval = time.Duration(r.u16()) * time.Second
		if s.interval > 0 {
			s.beat = time.AfterFunc(s.interval/2, s.tick)
		}
	case 40: // open
		s.method(0, 10, 41, appendShort(nil, ""))
	case 50: // close
		s.method(0, 10, 51)
		return io.EOF
	case 51: // close-ok
		return io.EOF
	default:
		return errProtocol
	}
	return nil
}

// tick sends a heartbeat and searches for the client's.
func (s *server) tick() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.gone {
		return
	}
	if !s.blocked && time.Since(s.heard) > 2*s.interval {
		s.cut()
		return
	}
	s.frameOut(frameHeartbeat, 0)
	s.beat.Reset(s.interval / 2)
}

// waitForAlarm blocks a connection that publishes during an alarm: in the middle of its message.
func (s *server) waitForAlarm() {
	if s.b.alarm && !s.blocked {
		s.blocked = true
		s.method(0, 10, 60, appendShort(nil, "low on memory"))
	}
	for s.b.alarm && !s.gone {
		s.b.changed.Wait()
	}
}

func (s *server) unblock() {
	s.blocked = false
	s.heard = time.Now()
	s.method(0, 10, 61)
}

// cut breaks the connection. What it held is ready again at once.
func (s *server) cut() {
	s.conn.cut()
	s.end()
}

// leave is the end of the goroutine that reads.
func (s *server) leave() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	_ = s.conn.Close()
	s.end()
}

func (s *server) end() {
	if s.gone {
		return
	}
	s.gone = true
	if s.beat != nil {
		s.beat.Stop()
	}
	delete(s.b.servers, s)
	var ids []uint16
	for id := range s.channels {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids { // all consumers first: what one gives back is not for the others
		s.channels[id].cancelAll()
	}
	for _, id := range ids {
		s.channels[id].end()
	}
	s.b.changed.Broadcast()
}

// method sends a method frame.
func (s *server) method(id, class, method uint16, args ...[]byte) {
	head := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(make([]byte, 0, 4), class), method)
	s.frameOut(frameMethod, id, append([][]byte{head}, args...)...)
}

func (s *server) frameOut(kind byte, id uint16, parts ...[]byte) {
	s.out = appendFrame(s.out[:0], kind, id, parts...)
	_, _ = s.conn.Write(s.out)
}

func appendFrame(b []byte, kind byte, id uint16, parts ...[]byte) []byte {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	b = binary.BigEndian.AppendUint16(append(b, kind), id)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	for _, p := range parts {
		b = append(b, p...)
	}
	return append(b, frameEnd)
}

// appendMessage appends the content of a message: its header and, in pieces that fit a frame, its body.
func appendMessage(b []byte, id uint16, p *Properties, body []byte) []byte {
	b = appendFrame(b, frameHeader, id, appendContent(nil, p, len(body)))
	for piece := range slices.Chunk(body, frameMax-8) {
		b = appendFrame(b, frameBody, id, piece)
	}
	return b
}
