package broker

import (
	"cmp"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
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

	// maxHeaderFrame bounds what is held back for one content header. Brokers stay below frame_max except for the few
	// hundred bytes that dead-lettering adds each time.
	maxHeaderFrame = 1 << 20
)

// wire is the stream the client library sees. Between the socket, or TLS, and the library it does three things:
//
//	socket ──> buf ──> [ deliveries to our consumers: intake ] ──> Deliveries
//	                   [ other content headers: defuse ] ────────> library
//	                   [ all others: as they are ] ──────────────> library
//
// and it keeps the deadlines. It deliberately has no SetReadDeadline: the library would call it, through another
// goroutine, once per frame. Read is for one goroutine, Write for one at a time, as the library does it.
type wire struct {
	conn net.Conn // what is read and written: the socket, or TLS on top of it
	raw  net.Conn // the socket; closing it ends every read and write at once
	lost func(n int)
	gone chan struct{} // closed when the connection is over
	over sync.Once

	use            sync.Mutex
	reading, ended bool // guarded by use

	idle        atomic.Int64  // nanoseconds without a byte after which the peer counts as gone; 0 during the handshake
	stuck       time.Duration // how long one write may stand still
	readArmed   time.Time
	writeArmed  time.Time
	frameLimit  atomic.Int64 // frame_max as negotiated
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
	holds     atomic.Bool // gathered has bytes
}

func newWire(conn, raw net.Conn, o *Options, lost func(n int)) *wire {
	w := &wire{conn: conn, raw: raw, lost: lost, gone: make(chan struct{}), stuck: writeTimeout, buf: make([]byte, wireBuffer)}
	w.frameLimit.Store(frameMax)
	w.intake.lost, w.intake.memory, w.intake.spool, w.intake.gone = lost, o.Memory, o.Spool, w.gone
	w.intake.patience = cmp.Or(o.MemoryPatience, defaultPatience)
	return w
}

// kill ends the connection at once: every read, every write, and the wait for memory.
func (w *wire) kill() {
	kill(w.raw)
	w.end()
}

// established ends the handshake: from now on silence for longer than idle ends the connection, and so does a write
// that stands still.
func (w *wire) established(idle time.Duration, frameLimit int) error {
	if frameLimit > 0 {
		w.frameLimit.Store(int64(frameLimit))
	}
	w.idle.Store(int64(idle))
	// The reader is already inside Read with the handshake's deadline; this moves it.
	return w.conn.SetDeadline(time.Now().Add(idle))
}

// fail keeps the first error of the connection: the library reduces it to its text.
func (w *wire) fail(err error) error {
	w.failure.CompareAndSwap(nil, &err)
	return err
}

// cause is the first error of the connection, nil when there was none.
func (w *wire) cause() error {
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Read hands out whatever is known to be readable for the library. When the connection is over, also while nothing is being
// read, the deliveries that are not complete are freed.
func (w *wire) Read(p []byte) (int, error) {
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

// end is for a connection that is over: incomplete deliveries are freed now, or by the read that is running.
func (w *wire) end() {
	w.over.Do(func() { close(w.gone) })
	w.use.Lock()
	defer w.use.Unlock()
	w.ended = true
	if !w.reading {
		w.intake.dropAll()
	}
}

func (w *wire) read(p []byte) (int, error) {
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

// ready reports whether there are bytes that may go to the library, after looking at the next frames when a new one
// begins.
func (w *wire) ready() bool {
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

// next looks at the frame that begins at r, takes it when it is the intake's, and decides how much of it may pass
// otherwise; false means that more must be read.
func (w *wire) next() bool {
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

// letThrough decides about a frame that is the library's.
func (w *wire) letThrough(kind byte, size uint32) bool {
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
func (w *wire) payloadLimit() int { return int(w.frameLimit.Load()) - frameHead - frameTail }

// filter defuses the content header at r, which is complete. A payload that became shorter moves towards its end, so
// that what follows the frame stays where it is.
func (w *wire) filter(size int) {
	body := w.r + frameHead
	out, lost := defuse(w.buf[body:body+size], w.payloadLimit())
	if gone := size - len(out); gone > 0 {
		copy(w.buf[body+gone:], out)
		copy(w.buf[w.r+gone:], w.buf[w.r:w.r+frameHead])
		w.r += gone
		binary.BigEndian.PutUint32(w.buf[w.r+3:], uint32(len(out))) // #nosec G115 -- at most the length of a frame
	}
	w.pass = frameHead + len(out) + frameTail
	if lost > 0 {
		w.lost(lost)
	}
}

// fill reads more, behind what is there. Only an incomplete frame can be there: it moves to the front, and a content
// header larger than the buffer gets a larger buffer.
func (w *wire) fill() error {
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
		return nil // an error comes again with the next read
	}
	return err
}

// receive reads from the connection. The deadline moves at most eight times per period: moving it costs more than
// reading a small message.
func (w *wire) receive(p []byte) (int, error) {
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

// Write writes all of p or ends the connection. What is gathered goes before it, and p is gathered itself while somebody
// gathers.
func (w *wire) Write(p []byte) (int, error) {
	w.out.Lock()
	defer w.out.Unlock()
	if w.gathering && len(w.gathered)+len(p) <= gatherLimit {
		w.gathered = append(w.gathered, p...)
		w.holds.Store(true)
		return len(p), nil
	}
	if err := w.push(); err != nil {
		return 0, err
	}
	return w.write(p)
}

// gather begins or ends gathering. What was gathered leaves with the next write, or by flush.
func (w *wire) gather(on bool) {
	w.out.Lock()
	defer w.out.Unlock()
	w.gathering = on
}

// flush writes what was gathered.
func (w *wire) flush() error {
	w.out.Lock()
	defer w.out.Unlock()
	return w.push()
}

func (w *wire) push() error {
	if len(w.gathered) == 0 {
		return nil
	}
	_, err := w.write(w.gathered)
	w.gathered = w.gathered[:0]
	w.holds.Store(false)
	return err
}

func (w *wire) write(p []byte) (int, error) {
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

// Close closes the socket. For TLS the farewell alert is left out: writing it could block.
func (w *wire) Close() error {
	err := w.raw.Close()
	w.end()
	return err
}
