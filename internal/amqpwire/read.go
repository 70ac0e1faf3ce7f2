package amqpwire

import (
	"encoding/binary"
	"math"
	"net"
	"time"
)

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
		w.dropAll()
	}
	return n, err
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
		if w.r == w.w && w.body != nil && w.left >= wireBuffer/4 && w.space() != nil {
			n, err := w.receive(w.space())
			w.intake.fill(n)
			if n == 0 && err != nil {
				return 0, err
			}
		} else if err := w.fill(); err != nil {
			return 0, err
		}
	}
}

// ready reports whether there are bytes that may go to the library. At the beginning of a frame it inspects the frame.
func (w *Wire) ready() bool {
	for w.r < w.w && w.pass == 0 && w.broken == nil {
		if w.body != nil {
			n, err := w.readBody(w.buf[w.r:w.w])
			w.r, w.broken = w.r+n, err
		} else if !w.next() {
			return false
		}
	}
	return w.r < w.w && w.broken == nil
}

const tlsAlert = 21 // content type of a TLS record

// next inspects the frame that begins at r, takes it if it is the intake's, and else decides how much of it may pass;
// false means that more must be read.
func (w *Wire) next() bool {
	have := w.w - w.r
	if have < frameHead {
		return false
	}
	kind, size := w.buf[w.r], binary.BigEndian.Uint32(w.buf[w.r+3:])
	if kind == 0 || kind > typeHeartbeat || size > math.MaxInt32-frameHead-frameTail {
		if w.broken = ErrNotAMQP; kind == tlsAlert { // else an HTTP server, or another version of AMQP
			w.broken = ErrPeerTLS
		}
		return true
	}
	n, err := w.frame(w.buf[w.r:w.w], int(size), w.payloadLimit())
	switch {
	case err != nil:
		w.broken = err
		return true
	case n == incomplete:
		return false
	case n > 0:
		w.r += n
		return true
	}
	return w.letThrough(kind, size)
}

// letThrough decides how much of a frame of the library may pass; false means that more must be read.
func (w *Wire) letThrough(kind byte, size uint32) bool {
	switch {
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
		w.o.Hidden(lost)
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
