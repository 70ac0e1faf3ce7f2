package amqpwire

import "encoding/binary"

const (
	connectionBlocked   = 10<<16 | 60 // class and method
	connectionUnblocked = 10<<16 | 61
)

// noticeAlarm reports connection.blocked and connection.unblocked, if the method frame at r is one of them; false means
// that more must be read. The client library reports them too, but on a channel that it may have closed meanwhile: when
// the connection ends at that moment the process panics.
func (w *Wire) noticeAlarm(size uint32) bool {
	if size < 4 || w.buf[w.r+1] != 0 || w.buf[w.r+2] != 0 { // of channel 0
		return true
	}
	if w.w-w.r < frameHead+4 {
		return false
	}
	method := binary.BigEndian.Uint32(w.buf[w.r+frameHead:])
	if report := w.alarm.Load(); report != nil && (method == connectionBlocked || method == connectionUnblocked) {
		(*report)(method == connectionBlocked)
	}
	return true
}
