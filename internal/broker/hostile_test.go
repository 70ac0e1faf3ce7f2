package broker

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestContextEndsTheSession: serve is in a call that the broker does not answer, and the call's own timeout is far
// away.
func TestContextEndsTheSession(t *testing.T) {
	t.Parallel()
	proxy, o := proxied(t)
	o.Timeout = time.Hour
	begun := make(chan struct{})
	stop := supervise(t, NewDialer(o), func(_ context.Context, s *Session) error {
		proxy.Stall(brokertest.Both)
		close(begun)
		_, err := s.Channel(context.Background())
		return err
	})
	<-begun
	result := make(chan error, 1)
	go func() { result <- stop() }()
	ended(t, result, "Supervise")
	proxy.Restore(t)
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
	if _, err := s.Channel(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		if !errors.Is(err, ErrDisconnected) {
			t.Errorf("%v", err)
		}
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
