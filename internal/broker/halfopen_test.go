package broker

import (
	"cmp"
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// halfway is a connection whose peer goes silent after left bytes. What is written still arrives there.
type halfway struct {
	net.Conn
	left atomic.Int64 // the goroutine that reads may still be about to end when a test asks
}

func (h *halfway) Read(p []byte) (int, error) {
	left := int(h.left.Load())
	if left == 0 {
		_, err := io.Copy(io.Discard, h.Conn) // until it is closed
		return 0, cmp.Or(err, net.ErrClosed)
	}
	n, err := h.Conn.Read(p[:min(len(p), left)])
	h.left.Add(int64(-n))
	return n, err
}

// A link may turn half-open at every byte of the handshake. None of them may hold the dialer longer than its timeout,
// and every one is a timeout: not a wrong password, which the same silence looks like to the client library.
func TestHandshakeThatStopsHalfway(t *testing.T) {
	t.Parallel()
	const unlimited = 1 << 20
	link := func(o *Options, left int) *halfway {
		h := &halfway{}
		h.left.Store(int64(left))
		o.Connect = func(ctx context.Context, addr string) (c net.Conn, err error) {
			h.Conn, err = dialTCP(ctx, addr)
			return h, err
		}
		return h
	}
	o := options(t)
	whole := link(&o, unlimited)
	s := dial(t, o)
	s.Kill() // a goodbye would be answered, and counted
	ended(t, s.conn.NotifyClose(make(chan *amqp.Error)), "the reading")
	n := unlimited - int(whole.left.Load())
	for _, n := range []int{0, 1, 7, 8, n / 4, n / 2, n - 15, n - 1} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Timeout = 300 * time.Millisecond
			link(&o, n)
			wantCause(t, errOf(NewDialer(o).Dial(t.Context())), causeTimeout, "")
		})
	}
}

// The calls that set up a session's work, each on a link that turned half-open just before. All errors have the same hint,
// whatever names the call has.
func TestEveryCallOnAHalfOpenLinkEnds(t *testing.T) {
	t.Parallel()
	q := queue(t)
	for name, call := range map[string]func(*Session, *Consumer) error{
		"open a channel": func(s *Session, _ *Consumer) error { _, err := s.Channel(t.Context()); return err },
		"subscribe":      func(s *Session, _ *Consumer) error { _, err := s.Subscribe(t.Context(), q); return err },
		"consume":        func(_ *Session, c *Consumer) error { _, err := c.sub.Consume(t.Context(), 1); return err },
		"cancel":         func(_ *Session, c *Consumer) error { return c.Stop(t.Context()) },
		`exchange "queue "`: func(s *Session, _ *Consumer) error {
			return s.Do(t.Context(), `declare exchange "queue "`, func() error { return s.conn.UpdateSecret("x", "x") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, o := proxied(t)
			s := dial(t, o)
			s.timeout = time.Second
			c := &Consumer{sub: must.Get(s.Subscribe(t.Context(), q))(t)}
			if name == "cancel" {
				c = start(t, c.sub, 1).q
			}
			proxy.Stall(brokertest.Both)
			err := call(s, c)
			wantErr(t, err, ErrDisconnected)
			wantCause(t, err, causeTimeout, "; if the broker is a cluster, a node of it may be down")
			ended(t, s.Done(), "the session")
			proxy.Restore(t)
		})
	}
}

// For ever, and neither a hot loop nor with pauses longer than half a minute.
func TestBackoffGrowsToItsLimitAndNeverEnds(t *testing.T) {
	t.Parallel()
	b := newBackoff(defaultBackoff)
	sum := time.Duration(0)
	for i := range 200 {
		pause, stop := b.Next()
		if stop || pause < 0 || pause > backoffLimit {
			t.Fatalf("pause %d: %v, stop %v", i, pause, stop)
		}
		if i == 0 && pause > defaultBackoff {
			t.Errorf("begins with %v", pause)
		}
		sum += pause
	}
	// 200 draws from up to 10 s have a mean of 5 s; 2 s would take a miracle.
	if sum < 200*2*time.Second {
		t.Errorf("200 attempts in %v", sum)
	}
}

// fakeSession is a session with a peer.
func fakeSession(t *testing.T, change func(*Options)) (*brokertest.Peer, *Session) {
	t.Helper()
	client, server := net.Pipe()
	p := &brokertest.Peer{Conn: server}
	var work sync.WaitGroup
	work.Go(func() { p.Serve("PLAIN") })
	t.Cleanup(work.Wait)
	o := options(t, "amqp://guest:guest@127.0.0.1:1/")
	o.Connect = func(context.Context, string) (net.Conn, error) { return client, nil }
	change(&o)
	return p, dial(t, o)
}

// counted counts the writes that have ended.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	defer c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestAnswerWithoutAQuestion: the library's reader waits until a call takes the answer, and so never sees that the
// connection has ended. Nothing else would notice either: there is no write before the next heartbeat.
func TestAnswerWithoutAQuestion(t *testing.T) {
	t.Parallel()
	link := &counted{}
	p, s := fakeSession(t, func(o *Options) {
		o.Timeout, o.Heartbeat = time.Hour, 5*time.Minute
		connect := o.Connect
		o.Connect = func(ctx context.Context, addr string) (c net.Conn, err error) {
			link.Conn, err = connect(ctx, addr)
			return link, err
		}
	})
	must.Get(s.Channel(t.Context()))(t)
	if err := p.Send(brokertest.Frame(1, 1, brokertest.Method(60, 11))); err != nil { // basic.qos-ok
		t.Fatal(err)
	}
	result, before := make(chan error, 1), link.writes.Load()
	go func() {
		_, err := s.Channel(context.Background())
		result <- err
	}()
	brokertest.Eventually(t, time.Minute, "the call is sent", func() bool { return link.writes.Load() > before })
	s.Kill()
	select {
	case err := <-result:
		wantErr(t, err, ErrDisconnected)
	case <-time.After(time.Minute):
		t.Fatal("the call does not return")
	}
}

// TestAlarmAtTheEnd: the broker goes on to report alarms while the connection ends.
func TestAlarmAtTheEnd(t *testing.T) {
	t.Parallel()
	toggle := append(brokertest.Frame(1, 0, brokertest.Method(10, 60, brokertest.Short("memory"))), brokertest.Frame(1, 0, brokertest.Method(10, 61))...)
	for range 8 {
		p, s := fakeSession(t, func(*Options) {})
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for p.Send(toggle) == nil {
			}
		}()
		s.Close()
		<-sending
	}
}

// A peer that vanished while we wait to send is found by TCP_USER_TIMEOUT, one that vanished while we are silent by
// keepalive, and both before a minute is over: heartbeats alone do not cover the handshake of a slow broker.
func TestSocketGivesAVanishedPeerUp(t *testing.T) {
	t.Parallel()
	c := must.Get(dialTCP(t.Context(), brokerAddr(t)))(t)
	defer amqpwire.CloseNow(c)
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("a %T", c)
	}
	raw := must.Get(tcp.SyscallConn())(t)
	for name, want := range map[string]struct{ level, option, value int }{
		"TCP_USER_TIMEOUT, ms": {syscall.IPPROTO_TCP, tcpUserTimeout, int(30 * time.Second / time.Millisecond)},
		"SO_KEEPALIVE":         {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE, s":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15},
		"TCP_KEEPINTVL, s":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		"TCP_KEEPCNT":          {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
	} {
		got, failed := 0, error(nil)
		if err := raw.Control(func(fd uintptr) {
			got, failed = syscall.GetsockoptInt(int(fd), want.level, want.option)
		}); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got != want.value {
			t.Errorf("%s is %d, want %d", name, got, want.value)
		}
	}
}

func brokerAddr(t *testing.T) string {
	t.Helper()
	return must.Get(NewDialer(options(t)).targets())(t)[0].addr()
}

func TestHeartbeatsFindAHalfOpenLink(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	proxy := brokertest.NewProxy(t, url)
	o := options(t, proxy.URL(t, url+"?heartbeat=0")) // ours wins over the URL's
	o.Heartbeat = time.Second
	s := dial(t, o)
	proxy.Stall(brokertest.Down)
	ended(t, s.Done(), "the session")
	wantCause(t, s.Err(), causeTimeout, "")
	proxy.Restore(t)
}

func TestHeartbeatsKeepAnIdleSession(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Heartbeat = time.Second
	s := dial(t, o)
	select {
	case <-s.Done():
		t.Errorf("an idle session ended: %v", s.Err())
	case <-time.After(4 * time.Second): // both ends give an idle link up within three intervals
	}
}
