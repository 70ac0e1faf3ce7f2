package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// What the sidecar may cost while its broker is hostile.
const (
	hostileMemory = "32MiB"         // SIDECAR_MEMORY
	hostileRSS    = 128 << 10       // KiB, of which 20 MiB are the program itself; the collector may let the heap grow to twice its size
	hostileStop   = 9 * time.Second // less than a call that gets no answer takes; the contract allows three more than the grace of 1s
	hostileWatch  = 700 * time.Millisecond
)

// TestHostileBroker: whatever its peer sends, the sidecar does not panic, stays within its memory, does not compute
// without work, answers its probes, and ends in time on SIGTERM.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	floods := make(chan struct{}, 3) // each keeps a core busy
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if m.flood {
				floods <- struct{}{}
				defer func() { <-floods }()
			}
			judge(t, m)
		})
	}
}

func judge(t *testing.T, m mode) {
	p, app := newHostilePeer(t, m), newApp(t)
	s := start(t, map[string]string{
		"SIDECAR_SERVICE": "hostile-svc", "SIDECAR_AMQP_URL": "amqp://guest:guest@" + p.addr + "/", "SIDECAR_APP_URL": app.url(),
		"SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0", "SIDECAR_PUBLISH_ADDR": "127.0.0.1:0",
		"SIDECAR_PUBLISH_TIMEOUT": "1s", "SIDECAR_SHUTDOWN_GRACE": "1s", "SIDECAR_MEMORY": hostileMemory, "GOMEMLIMIT": "64MiB",
	})
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	defer steadily(t, 50*time.Millisecond, func() { // the answers are of no interest
		if answer, err := client.Post("http://"+s.endpoint+"/publish/default/k", "text/plain", strings.NewReader("x")); err == nil {
			_ = answer.Body.Close()
		}
	})()
	if m.on != closeConnection && m.on != basicCancel {
		awaitMisbehaviour(t, p)
	}
	if m.name == wellBehaved {
		s.awaitReady().published("/publish/default/k", "x", nil)
	}
	time.Sleep(hostileWatch) // the damage is done meanwhile
	eventually(t, "GET /livez is 200", func() bool { status, _ := s.get(s.admin, "/livez"); return status == http.StatusOK })
	if !m.flood {
		eventually(t, "a sidecar that computes for less than a quarter of the time", func() bool {
			before := s.cpu()
			time.Sleep(hostileWatch / 3)
			return s.cpu()-before < hostileWatch/12
		})
	}
	if kib := peakRSS(t, s.cmd.Process.Pid); kib > hostileRSS {
		t.Errorf("%d MiB at its peak, the limit is %d", kib>>10, hostileRSS>>10)
	}
	s.signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	case <-time.After(hostileStop):
		t.Errorf("still there %v after SIGTERM", hostileStop)
	}
	awaitMisbehaviour(t, p)
}

func awaitMisbehaviour(t *testing.T, p *hostilePeer) {
	t.Helper()
	select {
	case <-p.reached:
	case <-time.After(patience):
		t.Fatal("the sidecar never got as far as the misbehaviour")
	}
}

// cpu is the time that the process has computed for.
func (s *sidecar) cpu() time.Duration {
	s.t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)))(s.t)
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		s.t.Fatalf("%d fields in stat", len(fields))
	}
	var user, system time.Duration
	must.Get(fmt.Sscan(fields[11]+" "+fields[12], &user, &system))(s.t)
	return (user + system) * 10 * time.Millisecond // ticks of 1/100 s
}

// consumed answers basic.consume and then sends what next returns for ever. next gets the connection, the consumer's
// channel and a number that counts from 0.
func consumed(name string, next func(l *link, ch uint16, n int) []byte) mode {
	return mode{name: name, flood: true, on: basicConsume, act: func(l *link, ch uint16) bool {
		l.reply(ch, basicConsume+1, short(l.consumer))
		l.forever(func(n int) []byte { return next(l, ch, n) })
		return true
	}}
}

// once is consumed with one piece.
func once(name string, next func(l *link, ch uint16) []byte) mode {
	return mode{name: name, on: basicConsume, act: func(l *link, ch uint16) bool {
		l.reply(ch, basicConsume+1, short(l.consumer))
		l.send(next(l, ch))
		return true
	}}
}

// endless is one message whose body of that size never ends: pieces of it are sent for ever.
func endless(begin func(l *link, ch uint16) []byte, size uint64, piece int) func(*link, uint16, int) []byte {
	return func(l *link, ch uint16, n int) []byte {
		if n == 0 {
			return append(begin(l, ch), content(ch, size)...)
		}
		return body(ch, piece)
	}
}

func delivering(l *link, ch uint16) []byte { return deliver(ch, l.consumer, 1) }

// one is a whole message of one byte.
func one(l *link, ch uint16, tag uint64) []byte {
	return append(append(deliver(ch, l.consumer, tag), content(ch, 1)...), body(ch, 1)...)
}

// hostileMessages are modes of what the broker delivers.
func hostileMessages() []mode {
	return []mode{
		consumed("deliveries to unknown consumers", func(_ *link, ch uint16, n int) []byte {
			return append(deliver(ch, "unknown", uint64(n)), content(ch, 0)...)
		}),
		consumed("deliveries without a header", func(l *link, ch uint16, n int) []byte { return deliver(ch, l.consumer, uint64(n)) }),
		once("a body longer than announced", func(l *link, ch uint16) []byte {
			return append(append(deliver(ch, l.consumer, 1), content(ch, 1)...), body(ch, 2)...)
		}),
		consumed("a body of 2^62", endless(delivering, 1<<62, 64<<10)),
		once("a header of 1 MiB", func(l *link, ch uint16) []byte {
			return append(deliver(ch, l.consumer, 1), content(ch, 0, bytes.Repeat([]byte(named("k", "V")), 350_000)...)...)
		}),
		consumed("delivery tag 0", func(l *link, ch uint16, _ int) []byte { return one(l, ch, 0) }),
		consumed("more than the prefetch count, 100 KiB each", func(l *link, ch uint16, n int) []byte {
			return append(append(deliver(ch, l.consumer, uint64(n)+1), content(ch, 100<<10)...), body(ch, 100<<10)...)
		}),
		consumed("deliveries with 8192 tiny tables", func(l *link, ch uint16, n int) []byte {
			return append(deliver(ch, l.consumer, uint64(n)+1), content(ch, 0, []byte(named("t", tinyTables(8192)))...)...)
		}),
		consumed("a message begun on each channel", func(l *link, _ uint16, n int) []byte {
			ch := uint16(n%65535) + 1
			return append(append(deliver(ch, l.consumer, 1), content(ch, 1<<20)...), body(ch, 10_000)...)
		}),
	}
}

// floods are modes of other methods that no question asked for.
func floods() []mode {
	const blocked, unblocked = 10<<16 | 60, 10<<16 | 61
	toggle := append(method(0, blocked, short(strings.Repeat("x", 255))), method(0, unblocked)...)
	fixed := func(b []byte) func(*link, uint16, int) []byte { return func(*link, uint16, int) []byte { return b } }
	there := func(id uint32, args ...[]byte) func(*link, uint16, int) []byte {
		return func(_ *link, ch uint16, _ int) []byte { return method(ch, id, args...) }
	}
	return []mode{
		consumed("blocked and unblocked for ever", fixed(toggle)),
		consumed("heartbeats for ever", fixed(bytes.Repeat(frame(8, 0), 100))),
		consumed("basic.cancel for the consumer", func(l *link, ch uint16, _ int) []byte {
			return method(ch, basicCancel, short(l.consumer), []byte{1})
		}),
		consumed("channel.close for ever", there(closeChannel, []byte{1, 0x94}, short("NOT_FOUND"), make([]byte, 4))),
		consumed("random bytes", fixed(bytes.Repeat([]byte{1, 0, 1, 0, 0, 0, 9, 0xfe, 0x7f, 0x3c, 0x80}, 100))),
	}
}

// published confirms each basic.publish and behind the first one sends what next returns for ever.
func published(name string, next func(ch uint16, n int) []byte) mode {
	return mode{name: name, flood: true, on: basicPublish, act: func(l *link, ch uint16) bool {
		if l.published[ch] == 1 {
			l.forever(func(n int) []byte { return next(ch, n) })
		}
		return false
	}}
}

// confirming answers basic.publish with these arguments of basic.ack or nack.
func confirming(name string, id uint32, args []byte) mode {
	return mode{name: name, on: basicPublish, act: sayThere(id, args)}
}

// confirms are modes of what the broker says to a publish.
func confirms() []mode {
	const ack, nack = 60<<16 | 80, 60<<16 | 120
	tag := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	back := func(headers string) []byte {
		return bytes.Join([][]byte{returned(1), content(1, 0, []byte(headers)...)}, nil)
	}
	return []mode{
		{name: "no confirm", on: basicPublish, act: nothing},
		confirming("ack of 2^63, multiple", ack, ackArgs(1<<63, 1)),
		published("nacks for ever", func(ch uint16, n int) []byte { return method(ch, nack, tag(n+1000), []byte{0}) }),
		published("returns for ever", func(ch uint16, _ int) []byte { return append(returned(ch), content(ch, 0)...) }),
		published("returns with bodies for ever", func(ch uint16, n int) []byte {
			if n%1025 == 0 {
				return append(returned(ch), content(ch, 16<<20)...)
			}
			return body(ch, 16<<10)
		}),
		published("returns with tiny tables", func(uint16, int) []byte { return back(named("t", tinyTables(8192))) }),
		published("channel.close behind each publish", func(ch uint16, _ int) []byte {
			return method(ch, closeChannel, []byte{1, 0x94}, short("NOT_FOUND"), make([]byte, 4))
		}),
	}
}
