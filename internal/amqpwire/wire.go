package amqpwire

import (
	"cmp"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/budget"
)

const (
	frameHead = 7 // type, channel, size
	frameTail = 1 // end mark

	typeHeader    = 2
	typeHeartbeat = 8

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
	conn   net.Conn // what is read and written: the socket, or TLS on top of it
	raw    net.Conn // the socket; closing it ends every read and write at once
	hidden func(n int)
	gone   chan struct{} // closed when the connection is over
	over   sync.Once

	use            sync.Mutex
	reading, ended bool // guarded by use

	idle        atomic.Int64  // nanoseconds without a byte after which the peer counts as gone; 0 during the handshake
	stuck       time.Duration // how long one write may make no progress
	readArmed   time.Time
	writeArmed  time.Time
	frameLimit  atomic.Int64 // the negotiated frame_max
	failure     atomic.Pointer[error]
	alarm       atomic.Pointer[func(blocked bool)]
	passThrough bool // not AMQP frames: the library will say so

	buf    []byte
	r, w   int
	pass   int   // bytes of the current frame that may go to the library
	broken error // what the broker sent cannot be read on

	intake intake

	out       sync.Mutex
	gathering bool
	gathered  []byte
	pending   atomic.Int64 // len(gathered)
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
	w := &Wire{
		conn: conn, raw: raw, hidden: o.Hidden, gone: make(chan struct{}), stuck: writeTimeout,
		buf: make([]byte, wireBuffer),
	}
	w.frameLimit.Store(FrameMax)
	w.intake.hidden, w.intake.memory, w.intake.spool, w.intake.gone = o.Hidden, o.Memory, o.Spool, w.gone
	w.intake.patience = cmp.Or(o.Patience, defaultPatience)
	return w
}

// Kill ends the connection at once: every read, every write, and the wait for memory.
func (w *Wire) Kill() {
	CloseNow(w.raw)
	w.end()
}

// CloseNow closes a socket without waiting for the data that it has not sent yet.
func CloseNow(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// OnAlarm makes report be called when the broker's resource alarm blocks or unblocks the connection.
func (w *Wire) OnAlarm(report func(blocked bool)) { w.alarm.Store(&report) }

// Consume makes deliveries for the consumer tag go to q. A tag must not be used twice on a connection.
func (w *Wire) Consume(tag string, q *Deliveries) { w.intake.add(tag, q) }

// Cancel ends the deliveries for the consumer tag.
func (w *Wire) Cancel(tag string) { w.intake.remove(tag) }

// Confirm makes returned receive the returned messages of a channel until Unconfirm. It must be called before the first
// publish. returned is called by the goroutine that reads, so before the library sees the confirm of the message.
func (w *Wire) Confirm(ch *amqp.Channel, returned func(f Fingerprint, why *ReturnedError)) *Confirming {
	return w.intake.confirm(ch, returned)
}

// Unconfirm ends Confirm for a channel that has been closed. Another channel may have its number by now.
func (w *Wire) Unconfirm(c *Confirming) { w.intake.unconfirm(c) }

// Waited reports whether reading has waited for memory at any time since then.
func (w *Wire) Waited(since time.Time) bool { return w.intake.waited(since) }

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

// Read returns bytes for the library. When the connection is over, incomplete deliveries are freed, also when no Read
// is running.
func (w *Wire) Read(p []byte) (int, error) {
	w.use.Lock()
	ended := w.ended
	w.reading = !ended
	w.use.Unlock()
	if ended {
		return 0, net.ErrClosed
	}
	n, err := w.read(p)
	w.use.Lock()
	defer w.use.Unlock()
	w.reading = false
	if w.ended || err != nil {
		w.intake.dropAll()
	}
	return n, err
}

// end frees incomplete deliveries of a connection that is over, or leaves that to the Read that is running.
func (w *Wire) end() {
	w.over.Do(func() { close(w.gone) })
	w.use.Lock()
	defer w.use.Unlock()
	w.ended = true
	if !w.reading {
		w.intake.dropAll()
	}
}

func (w *Wire) read(p []byte) (int, error) {
	for {
		n := 0
		for n < len(p) && w.ready() {
			c := copy(p[n:], w.buf[w.r:min(w.w, w.r+w.pass)])
			n, w.r, w.pass = n+c, w.r+c, w.pass-c
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if w.broken != nil {
			return 0, w.fail(w.broken)
		}
		// A large piece of a body goes straight to where it belongs.
		switch {
		case w.r == w.w && w.pass >= len(p) && len(p) >= wireBuffer/4:
			n, err := w.receive(p)
			w.pass -= n
			return n, err
		case w.r == w.w && w.intake.reading() && w.intake.left >= wireBuffer/4 && w.intake.space() != nil:
			n, err := w.receive(w.intake.space())
			w.intake.fill(n)
			if n == 0 && err != nil {
				return 0, err
			}
		default:
			if err := w.fill(); err != nil {
				return 0, err
			}
		}
	}
}

// ready reports whether there are bytes that may go to the library. At the beginning of a frame it inspects the frame.
func (w *Wire) ready() bool {
	for w.r < w.w && w.pass == 0 && w.broken == nil {
		if w.intake.reading() {
			n, err := w.intake.take(w.buf[w.r:w.w])
			w.r, w.broken = w.r+n, err
		} else if !w.next() {
			return false
		}
	}
	return w.r < w.w && w.broken == nil
}

// next inspects the frame that begins at r, takes it if it is the intake's, and else decides how much of it may pass;
// false means that more must be read.
func (w *Wire) next() bool {
	have := w.w - w.r
	if w.passThrough {
		w.pass = have
		return true
	}
	if have < frameHead {
		return false
	}
	kind, size := w.buf[w.r], binary.BigEndian.Uint32(w.buf[w.r+3:])
	switch {
	case kind == 0 || kind > typeHeartbeat || size > math.MaxInt32-frameHead-frameTail:
		_ = w.fail(errNotAMQP) // an HTTP server, or another version of AMQP: the library will give up
		w.passThrough = true
		w.pass = have
		return true
	case w.intake.active.Load():
		whose, n, err := w.intake.frame(w.buf[w.r:w.w], int(size), w.payloadLimit())
		if whose != libraries {
			w.r, w.broken = w.r+n, err
			return whose == ours
		}
	}
	return w.letThrough(kind, size)
}

// letThrough decides how much of a frame of the library may pass; false means that more must be read.
func (w *Wire) letThrough(kind byte, size uint32) bool {
	switch {
	case kind == typeMethod && !w.noticeAlarm(size):
		return false
	case kind != typeHeader || size > maxHeaderFrame:
		w.pass = frameHead + int(size) + frameTail
		return true
	case w.w-w.r < frameHead+int(size)+frameTail:
		return false
	case size >= headerFixed && binary.BigEndian.Uint64(w.buf[w.r+frameHead+4:]) > maxForeign:
		w.broken = errForeign
		return false
	}
	w.filter(int(size))
	return true
}

// payloadLimit is how much a frame may hold, as negotiated.
func (w *Wire) payloadLimit() int { return int(w.frameLimit.Load()) - frameHead - frameTail }

// filter sanitizes the complete content header at r. A payload that became shorter moves towards its end, so that the
// bytes after the frame stay where they are.
func (w *Wire) filter(size int) {
	body := w.r + frameHead
	out, lost := sanitize(w.buf[body:body+size], w.payloadLimit())
	if gone := size - len(out); gone > 0 {
		copy(w.buf[body+gone:], out)
		copy(w.buf[w.r+gone:], w.buf[w.r:w.r+frameHead])
		w.r += gone
		binary.BigEndian.PutUint32(w.buf[w.r+3:], uint32(len(out))) // #nosec G115 -- at most the length of a frame
	}
	w.pass = frameHead + len(out) + frameTail
	if lost > 0 {
		w.hidden(lost)
	}
}

// fill reads more bytes after those in the buffer, which are an incomplete frame: it moves to the front, and a content
// header larger than the buffer gets a larger buffer.
func (w *Wire) fill() error {
	w.w = copy(w.buf, w.buf[w.r:w.w])
	w.r = 0
	if w.w == 0 && len(w.buf) > wireBuffer {
		w.buf = make([]byte, wireBuffer)
	}
	if w.w == len(w.buf) {
		w.buf = append(w.buf, make([]byte, len(w.buf))...)
	}
	n, err := w.receive(w.buf[w.w:])
	w.w += n
	if n > 0 {
		return nil // the next read returns the error again
	}
	return err
}

// receive reads from the connection. The deadline moves at most eight times per period: moving it costs more than
// reading a small message.
func (w *Wire) receive(p []byte) (int, error) {
	if idle := time.Duration(w.idle.Load()); idle > 0 {
		if now := time.Now(); now.Sub(w.readArmed) > idle/8 {
			w.readArmed = now
			if err := w.conn.SetReadDeadline(now.Add(idle)); err != nil {
				return 0, w.fail(err)
			}
		}
	}
	n, err := w.conn.Read(p)
	if err != nil {
		_ = w.fail(err)
	}
	return n, err
}

// Write writes all of p or ends the connection. Gathered bytes go first; while gathering is on, p is gathered, too.
func (w *Wire) Write(p []byte) (int, error) {
	w.out.Lock()
	defer w.out.Unlock()
	if w.gathering && len(w.gathered)+len(p) <= gatherLimit {
		w.gathered = append(w.gathered, p...)
		w.pending.Store(int64(len(w.gathered)))
		return len(p), nil
	}
	if err := w.push(); err != nil {
		return 0, err
	}
	return w.write(p)
}

// Gather turns gathering on or off. Gathered bytes leave with the next write, or by Flush.
func (w *Wire) Gather(on bool) {
	w.out.Lock()
	defer w.out.Unlock()
	w.gathering = on
}

// Pending returns how many bytes are gathered.
func (w *Wire) Pending() int { return int(w.pending.Load()) }

// Flush writes the gathered bytes.
func (w *Wire) Flush() error {
	w.out.Lock()
	defer w.out.Unlock()
	return w.push()
}

func (w *Wire) push() error {
	if len(w.gathered) == 0 {
		return nil
	}
	_, err := w.write(w.gathered)
	w.gathered = w.gathered[:0]
	w.pending.Store(0)
	return err
}

func (w *Wire) write(p []byte) (int, error) {
	if w.idle.Load() > 0 {
		if now := time.Now(); now.Sub(w.writeArmed) > w.stuck/8 {
			w.writeArmed = now
			if err := w.conn.SetWriteDeadline(now.Add(w.stuck)); err != nil {
				return 0, w.fail(err)
			}
		}
	}
	n, err := w.conn.Write(p)
	if err != nil {
		_ = w.fail(err)
	}
	return n, err
}

// Close closes the socket. For TLS no close alert is sent: writing it could block.
func (w *Wire) Close() error {
	err := w.raw.Close()
	w.end()
	return err
}
