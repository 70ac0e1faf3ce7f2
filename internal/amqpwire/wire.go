package amqpwire

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/budget"
)

const (
	// wireBuffer holds several small deliveries per read; the library's own buffer of 4 KiB would mean a system call
	// for every few messages.
	wireBuffer = 64 << 10

	// gatherLimit bounds what is gathered, in bytes.
	gatherLimit = 64 << 10

	// FrameMax is the frame_max that a client offers, in bytes; the broker may lower it. It bounds the header table of a
	// message.
	FrameMax = 131072

	// writeTimeout ends a connection on which one write makes no progress: the broker has stopped reading.
	writeTimeout = 30 * time.Second

	// maxHeaderFrame bounds what is held back for one content header. Brokers stay below frame_max except for the few
	// hundred bytes that dead-lettering adds each time.
	maxHeaderFrame = 1 << 20
)

// Wire is the stream that the client library reads and writes. Between the socket, or TLS, and the library it does
// three things:
//
//	socket ──> buf ──> [ deliveries to our consumers: intake ] ──> Deliveries
//	                   [ other content headers: sanitize ] ──────> library
//	                   [ all others: as they are ] ──────────────> library
//
// and it sets the deadlines. It has no SetReadDeadline, because the library would call it once per frame through
// another goroutine. One goroutine may call Read, and one at a time Write, as the library does.
type Wire struct {
	*intake

	conn    net.Conn // what is read and written: the socket, or TLS on top of it
	raw     net.Conn // the socket; closing it ends every read and write at once
	endOver func()   // ends the intake's context

	use            sync.Mutex
	reading, ended bool // guarded by use

	idle       atomic.Int64  // nanoseconds without a byte after which the peer counts as gone; 0 during the handshake
	stuck      time.Duration // how long one write may make no progress
	readArmed  time.Time
	writeArmed time.Time
	frameLimit atomic.Int64 // the negotiated frame_max
	failure    atomic.Pointer[error]

	buf    []byte
	r, w   int
	pass   int   // bytes of the current frame that may go to the library
	broken error // what the broker sent cannot be read on

	out        sync.Mutex
	gathered   []byte          // frames; the first byte may be the end mark of one that was written
	pending    atomic.Int64    // len(gathered)
	head       [frameHead]byte // of the frame that the library is writing
	headed     int             // bytes of head; 0: the library is between two frames
	unfinished int             // bytes behind head that are still to come
}

// Options of a Wire.
type Options struct {
	// Memory is reserved for each delivery before its body is read, until Delivery.Free; nil: not bounded.
	Memory *budget.Account
	// Patience is how long a delivery waits for Memory before its body goes to Spool; 0 = 10 s.
	Patience time.Duration
	Spool    *Spool // for bodies that Memory cannot hold; nil: such a body is dropped, see Delivery.Missing
	// Hidden is called with the number of header values of one message that the client library cannot read.
	Hidden func(values int)
}

// New returns the stream for the client library on top of conn, the socket or TLS; raw is the socket.
func New(conn, raw net.Conn, o Options) *Wire {
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	over, end := context.WithCancel(context.Background())
	w := &Wire{
		intake: newIntake(over, o), conn: conn, raw: raw, endOver: end, stuck: writeTimeout, buf: make([]byte, wireBuffer),
	}
	w.frameLimit.Store(FrameMax)
	return w
}

// Established ends the handshake: from now on silence for longer than idle ends the connection, and so does a write
// without progress.
func (w *Wire) Established(idle time.Duration, frameLimit int) error {
	if frameLimit > 0 {
		w.frameLimit.Store(int64(frameLimit))
	}
	w.idle.Store(int64(idle))
	// The reader is already inside Read with the handshake's deadline; this moves it.
	return w.conn.SetDeadline(time.Now().Add(idle))
}

// fail stores the first error of the connection: the library keeps only its text.
func (w *Wire) fail(err error) error {
	w.failure.CompareAndSwap(nil, &err)
	return err
}

// Err returns the first error of the connection, or nil.
func (w *Wire) Err() error {
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Kill ends the connection at once: every read, every write, and the wait for memory.
func (w *Wire) Kill() {
	CloseNow(w.raw)
	w.end()
}

// Close closes the socket. For TLS no close alert is sent: writing it could block.
func (w *Wire) Close() error {
	err := w.raw.Close()
	w.end()
	return err
}

// end frees incomplete deliveries of a connection that is over, or leaves that to the Read that is running.
func (w *Wire) end() {
	w.endOver()
	w.use.Lock()
	defer w.use.Unlock()
	w.ended = true
	if !w.reading {
		w.dropAll()
	}
}

// CloseNow closes a socket without waiting for the data that it has not sent yet.
func CloseNow(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
