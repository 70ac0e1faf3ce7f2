package test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"
)

// wellBehaved does not misbehave, and shows that the others get as far as they say.
const wellBehaved = "well behaved"

// modes is every way in which a hostilePeer misbehaves, and wellBehaved.
func modes() []mode {
	list := []mode{{name: wellBehaved, on: basicConsume, act: func(*link, uint16) bool { return false }}}
	for _, part := range [][]mode{handshakes(), tunes(), answers(), hostileMessages(), floods(), confirms(), endings()} {
		list = append(list, part...)
	}
	return list
}

// first is a mode that sends frames in place of connection.start and then nothing more.
func first(name string, frames ...[]byte) mode {
	return mode{name: name, start: func(l *link) { l.send(frames...); l.silent() }}
}

// startWith is connection.start with these server properties.
func startWith(properties string) []byte {
	return method(0, 10<<16|10, []byte{0, 9}, long(properties), long("PLAIN"), long("en_US"))
}

func handshakes() []mode {
	good := startWith("")
	hostile := strings.Repeat(named("a", tinyTables(8192)), 8)
	return []mode{
		first("start: never"),
		{name: "start: HTTP for ever", flood: true, start: func(l *link) {
			for l.send(bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 1000)) {
			}
		}},
		{name: "start: a byte a second", start: func(l *link) { l.slowly(good) }},
		{name: "start: a frame of 2^31-1, sent for ever", flood: true, start: func(l *link) {
			l.send(announced(1<<31-1), []byte{0, 10, 0, 10, 0, 9, 0x7f, 0xff, 0xff, 0})
			for l.send(make([]byte, 64<<10)) {
			}
		}},
		first("start: tables 10000 deep", startWith(named("t", deep(10000)))),
		first("start: 65536 tiny tables", startWith(hostile)),
		{name: "secure for ever", flood: true, on: startOk, act: repeat(method(0, 10<<16|20, long("x")))},
	}
}

// tuned is a mode whose tune has these limits.
func tuned(name string, channels uint16, frame uint32, heartbeat uint16) mode {
	args := binary.BigEndian.AppendUint16(nil, channels)
	args = binary.BigEndian.AppendUint32(args, frame)
	return mode{name: name, on: startOk, act: sayOn(0, 10<<16|30, binary.BigEndian.AppendUint16(args, heartbeat))}
}

func tunes() []mode {
	return []mode{
		tuned("tune: frame_max 1", 0, 1, 0),
		tuned("tune: one channel", 1, 131072, 0),
		tuned("tune: heartbeat 1, and never one", 0, 131072, 1),
		{name: "tune for ever", flood: true, on: startOk, act: repeat(method(0, 10<<16|30, make([]byte, 8)))},
	}
}

func answers() []mode {
	long255 := strings.Repeat("q", 255)
	return []mode{
		{name: "channel.open-ok never", on: openChannel, act: nothing},
		{name: "channel.close for each channel", on: openChannel, act: func(l *link, ch uint16) bool {
			l.reply(ch, openChannel+1, long(""))
			l.reply(ch, closeChannel, []byte{1, 0x94}, short("NOT_FOUND"), make([]byte, 4))
			return true
		}},
		{name: "declare-ok for another queue, 2^32-1 messages", on: declareQueue, act: sayThere(declareQueue+1, short(long255), bytes.Repeat([]byte{0xff}, 8))},
		{name: "declare-ok cut short", on: declareQueue, act: sayThere(declareQueue+1, []byte{255})},
		{name: "a delivery on channel 0", on: basicConsume, act: func(l *link, _ uint16) bool {
			return l.send(deliver(0, l.consumer, 1), content(0, 0))
		}},
	}
}

// nothing is not an answer.
func nothing(*link, uint16) bool { return true }

// raw answers with these bytes.
func raw(b []byte) func(*link, uint16) bool {
	return func(l *link, _ uint16) bool { l.send(b); return true }
}

// sayOn answers with a method on that channel.
func sayOn(channel uint16, id uint32, args ...[]byte) func(*link, uint16) bool {
	return raw(method(channel, id, args...))
}

// sayThere answers with a method on the channel of the question.
func sayThere(id uint32, args ...[]byte) func(*link, uint16) bool {
	return func(l *link, ch uint16) bool { l.reply(ch, id, args...); return true }
}

// repeat sends b for ever in place of an answer.
func repeat(b []byte) func(*link, uint16) bool {
	return func(l *link, _ uint16) bool {
		l.forever(func(int) []byte { return b })
		return true
	}
}

// endings are modes of a connection that ends, or does not.
func endings() []mode {
	return []mode{
		{name: "closed within a frame", on: basicConsume, act: func(l *link, ch uint16) bool {
			l.send(deliver(ch, l.consumer, 1)[:20])
			_ = l.Close()
			return true
		}},
		{name: "reads nothing more", on: basicConsume, act: func(l *link, ch uint16) bool {
			l.reply(ch, basicConsume+1, short(l.consumer))
			<-l.peer.over
			return true
		}},
		{name: "connection.close, and stays", on: basicConsume, act: sayOn(0, closeConnection, []byte{1, 0x40}, short("CONNECTION_FORCED"), make([]byte, 4))},
		{name: "connection.close for ever", flood: true, on: basicConsume, act: repeat(method(0, closeConnection, []byte{1, 0x40}, short("x"), make([]byte, 4)))},
		{name: "cancel-ok never", on: basicCancel, act: nothing},
		{name: "reset after each publish", on: basicPublish, act: func(l *link, _ uint16) bool {
			time.Sleep(10 * time.Millisecond)
			return l.Close() == nil
		}},
	}
}
