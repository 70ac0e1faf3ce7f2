package amqpwire

import (
	"encoding/binary"
	"time"
)

// Write writes all of p for the client library or ends the connection. Gathered bytes go first.
func (w *Wire) Write(p []byte) (int, error) {
	w.out.Lock()
	defer w.out.Unlock()
	if err := w.push(); err != nil {
		return 0, err
	}
	w.follow(p)
	return w.write(p)
}

// follow finds out whether p ends within a frame: the library writes a large frame in pieces, and no other frame may
// come between them.
func (w *Wire) follow(p []byte) {
	for len(p) > 0 && w.idle.Load() > 0 { // the handshake begins with bytes that are not a frame
		if w.headed < frameHead {
			n := copy(w.head[w.headed:], p)
			w.headed, p = w.headed+n, p[n:]
			w.unfinished = int(binary.BigEndian.Uint32(w.head[3:])) + frameTail
			continue
		}
		n := min(w.unfinished, len(p))
		if w.unfinished, p = w.unfinished-n, p[n:]; w.unfinished == 0 {
			w.headed = 0
		}
	}
}

// awaitBoundary waits until the library has written the whole of a frame. w.out is locked.
func (w *Wire) awaitBoundary() {
	for w.headed > 0 && w.over.Err() == nil {
		w.out.Unlock()
		select {
		case <-time.After(frameWait):
		case <-w.over.Done():
		}
		w.out.Lock()
	}
}

// frameWait is how long to wait before asking again. The library writes a frame in pieces only if it is larger than
// 4 KiB: a dry run on a connection that publishes at the same time.
const frameWait = 100 * time.Microsecond

// Pending returns how many bytes are gathered.
func (w *Wire) Pending() int { return int(w.pending.Load()) }

// Flush writes the gathered bytes.
func (w *Wire) Flush() error {
	w.out.Lock()
	defer w.out.Unlock()
	return w.push()
}

func (w *Wire) setGathered(b []byte) {
	w.gathered = b
	w.pending.Store(int64(len(b)))
}

func (w *Wire) push() error {
	if len(w.gathered) == 0 {
		return nil
	}
	_, err := w.write(w.gathered)
	w.setGathered(w.gathered[:0])
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
