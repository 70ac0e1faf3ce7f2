package amqpwire

import "time"

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
