package broker

import (
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// halfway is a broker whose answers stop after n bytes; what it is told still arrives there.
func halfway(t *testing.T, n int64) string {
	t.Helper()
	u, err := url.Parse(brokertest.URL(t))
	if err != nil {
		t.Fatal("AMQP_URL cannot be parsed")
	}
	target := u.Host
	front, err := url.Parse(listen(t, func(c net.Conn) {
		real, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = real.Close() })
		go func() { _, _ = io.Copy(real, c) }()
		go func() { _, _ = io.CopyN(c, real, n) }()
	}))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = front.Host
	return u.String()
}

// A link may turn half-open at every byte of the handshake. None of them may hold the dialer longer than its timeout,
// and every one is a timeout: not a wrong password, which the same silence looks like to the client library.
func TestHandshakeThatStopsHalfway(t *testing.T) {
	t.Parallel()
	o := options(brokertest.URL(t))
	whole := handshakeBytes(t)
	for _, n := range []int64{0, 1, 7, 8, whole / 4, whole / 2, whole - 15, whole - 1} {
		o.URLs = urls(halfway(t, n))
		o.Timeout = 300 * time.Millisecond
		if _, err := NewDialer(o).Dial(t.Context()); err == nil || causeOf(err) != causeTimeout {
			t.Errorf("%d bytes of %d: %v is %s", n, whole, err, causeOf(err))
		}
	}
}

// handshakeBytes counts what the broker says until a session stands.
func handshakeBytes(t *testing.T) int64 {
	t.Helper()
	u, err := url.Parse(brokertest.URL(t))
	if err != nil {
		t.Fatal("AMQP_URL cannot be parsed")
	}
	target, counted := u.Host, make(chan int64, 1)
	front, err := url.Parse(listen(t, func(c net.Conn) {
		real, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(real, c); _ = real.Close() }()
		n, _ := io.Copy(c, real)
		counted <- n
	}))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = front.Host
	s, err := NewDialer(options(u.String())).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Kill() // a goodbye would be answered, and counted
	return <-counted
}

// The calls that set up a session's work, each on a link that turned half-open just before.
func TestEveryCallOnAHalfOpenLinkEnds(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	q := queue(t)
	for name, call := range map[string]func(*Session, *Subscription) error{
		"open a channel": func(s *Session, _ *Subscription) error { _, err := s.Channel(t.Context()); return err },
		"subscribe":      func(s *Session, _ *Subscription) error { _, err := s.Subscribe(t.Context(), q, 1); return err },
		"consume":        func(_ *Session, sub *Subscription) error { _, err := sub.Start(t.Context()); return err },
		"cancel":         func(_ *Session, sub *Subscription) error { return sub.Stop(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			proxy := brokertest.NewProxy(t, url)
			o := options(proxy.URL(t, url))
			o.Timeout = time.Second
			s := dial(t, o)
			sub, err := s.Subscribe(t.Context(), q, 1)
			if err != nil {
				t.Fatal(err)
			}
			if name == "cancel" {
				start(t, sub)
			}
			proxy.Stall(brokertest.Both)
			if err := call(s, sub); causeOf(err) != causeTimeout {
				t.Errorf("%v is %s", err, causeOf(err))
			}
			ended(t, s.Done(), "the session")
			proxy.Restore(t)
		})
	}
}

// For ever, and neither a hot loop nor longer than half a minute apart.
func TestBackoffGrowsToItsLimitAndNeverEnds(t *testing.T) {
	t.Parallel()
	b := newBackoff()
	sum := time.Duration(0)
	for i := range 200 {
		pause, stop := b.Next()
		if stop || pause < 0 || pause > backoffLimit {
			t.Fatalf("pause %d: %v, stop %v", i, pause, stop)
		}
		if i == 0 && pause > backoffFirst {
			t.Errorf("begins with %v", pause)
		}
		sum += pause
	}
	// 200 draws from up to 10 s have a mean of 5 s; 2 s would take a miracle.
	if sum < 200*2*time.Second {
		t.Errorf("200 attempts in %v", sum)
	}
}
