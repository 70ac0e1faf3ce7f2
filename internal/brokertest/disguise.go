package brokertest

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"sidecar/internal/testkit/proxy"
)

// Disguise is a Proxy that changes the version in the broker's greeting, and counts what clients ask of the broker.
type Disguise struct {
	*Proxy
	mu       sync.Mutex
	version  string
	as       bool
	declares int
	channels int
}

// NoVersion makes a greeting hold no version at all.
const NoVersion = ""

// NewDisguise starts a Disguise in front of the broker at target, an AMQP URL. It changes nothing before As.
func NewDisguise(t testing.TB, target string) *Disguise {
	t.Helper()
	d := &Disguise{}
	d.Proxy = newProxy(t, target, proxy.Options{Wrap: func(c net.Conn) (net.Conn, error) {
		return &greeted{Conn: c, d: d}, nil
	}})
	return d
}

// As makes later connections greet with that version.
func (d *Disguise) As(version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version, d.as = version, true
}

// Off makes later connections greet with the broker's own version.
func (d *Disguise) Off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.as = false
}

// Asked returns how many queues and exchanges clients have tried to create, and how many channels they have opened.
func (d *Disguise) Asked() (declares, channels int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.declares, d.channels
}

func (d *Disguise) count(sent []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(sent) >= 8 && int(binary.BigEndian.Uint32(sent[3:]))+8 <= len(sent) {
		payload := sent[7 : 7+binary.BigEndian.Uint32(sent[3:])]
		sent = sent[len(payload)+8:]
		switch {
		case bytes.HasPrefix(payload, []byte{0, 20, 0, 10}): // channel.open
			d.channels++
		case bytes.HasPrefix(payload, []byte{0, 50, 0, 10}) && !passive(payload[6:], 1), // queue.declare
			bytes.HasPrefix(payload, []byte{0, 40, 0, 10}) && !passive(payload[6:], 2): // exchange.declare
			d.declares++
		}
	}
}

// passive reports whether a declaration, behind so many short texts, creates nothing.
func passive(args []byte, texts int) bool {
	for range texts {
		args = args[1+int(args[0]):]
	}
	return args[0]&1 != 0
}

// greeted is the connection of a client.
type greeted struct {
	net.Conn
	d        *Disguise
	greeting []byte
	over     bool
}

func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.d.count(b[:n])
	return n, err
}

func (g *greeted) Write(b []byte) (int, error) {
	if g.over {
		return g.Conn.Write(b)
	}
	g.greeting = append(g.greeting, b...)
	if len(g.greeting) < 7 || len(g.greeting) < int(binary.BigEndian.Uint32(g.greeting[3:]))+8 {
		return len(b), nil
	}
	g.over = true
	g.d.mu.Lock()
	version, as := g.d.version, g.d.as
	g.d.mu.Unlock()
	if as {
		g.greeting = disguised(g.greeting, version)
	}
	_, err := g.Conn.Write(g.greeting)
	return len(b), err
}

// disguised returns connection.start with another version.
func disguised(start []byte, version string) []byte {
	const key = "\x07versionS"
	before, after, _ := bytes.Cut(start, []byte(key))
	size := int(binary.BigEndian.Uint32(after))
	out := bytes.Join([][]byte{before, []byte(key), Long(version), after[4+size:]}, nil)
	if version == NoVersion {
		copy(out[len(before):], "\x07noisreV")
	}
	for _, at := range []int{3, 13} { // the sizes of the frame and of the table
		was := binary.BigEndian.Uint32(out[at:])
		binary.BigEndian.PutUint32(out[at:], was+uint32(len(version)-size)) // #nosec G115 -- wraps as it should
	}
	return out
}
