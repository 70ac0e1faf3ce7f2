package broker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

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
			if _, err := NewDialer(o).Dial(t.Context()); err == nil || causeOf(err) != causeTimeout {
				t.Errorf("%v is %s", err, causeOf(err))
			}
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
			if !errors.Is(err, ErrDisconnected) || causeOf(err) != causeTimeout || !strings.Contains(err.Error(), "; if the broker is a cluster, a node of it may be down") {
				t.Errorf("%v is %s", err, causeOf(err))
			}
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
