package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// listen takes connections and gives each to serve, which must end when it is closed.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "amqp://user:canary@" + l.Addr().String() + "/"
}

// TestDialTriesEveryURL: each dial begins with another one, and those that fail are logged.
func TestDialTriesEveryURL(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	count := func(n *atomic.Int64) func(net.Conn) {
		return func(c net.Conn) { n.Add(1); _ = c.Close() }
	}
	var out brokertest.Log
	o := options(t, listen(t, count(&first)), listen(t, count(&second)), brokertest.URL(t))
	o.Logger = out.Logger()
	d := NewDialer(o)
	for range 6 {
		s := must.Get(d.Dial(t.Context()))(t)
		s.Close()
	}
	if first.Load() == 0 || second.Load() == 0 {
		t.Errorf("tried %d and %d times", first.Load(), second.Load())
	}
	if log := out.String(); !strings.Contains(log, "broker connection failed") || strings.Contains(log, "canary") {
		t.Errorf("a dead broker is not logged, or a password is: %s", log)
	}
}

func TestDialNamesTheReason(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	silent := listen(t, func(net.Conn) {})
	slammed := listen(t, func(c net.Conn) { _ = c.Close() })
	http := listen(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); _ = c.Close() })
	tests := map[string]struct {
		change func(*Options)
		want   cause
		text   string
	}{
		"refused":      {func(o *Options) { o.URLs = urls("amqp://user:canary@127.0.0.1:1/") }, causeNetwork, "refused"},
		"no such host": {func(o *Options) { o.URLs = urls("amqp://user:canary@host.invalid/") }, causeNetwork, "host.invalid"},
		"silent":       {func(o *Options) { o.URLs, o.Timeout = urls(silent), time.Second }, causeTimeout, "deadline"},
		"silent TLS": {func(o *Options) {
			o.URLs, o.Timeout = urls(strings.Replace(silent, "amqp", "amqps", 1)), time.Second
		}, causeTimeout, "deadline"},
		"closed at once":  {func(o *Options) { o.URLs = urls(slammed) }, causeNetwork, ""},
		"another service": {func(o *Options) { o.URLs = urls(http) }, causeBroker, "does not speak AMQP"},
		"wrong password":  {func(o *Options) { o.Password = text("canary") }, causeAuth, ""},
		"unknown vhost":   {func(o *Options) { o.URLs = urls(strings.TrimSuffix(url, "/") + "/missing") }, causeAuth, "missing"},
		"malformed":       {func(o *Options) { o.URLs = urls("amqp://user:canary%zz@host/") }, causeConfig, "1 of 1"},
		"no URL":          {func(o *Options) { o.URLs = urls() }, causeConfig, "no URL"},
		"unreadable URL":  {func(o *Options) { o.URLs = func() ([]string, error) { return nil, errors.New("gone") } }, causeConfig, "gone"},
		"unreadable user": {func(o *Options) { o.Username = unreadable }, causeConfig, "gone"},
		"unreadable pass": {func(o *Options) { o.Password = unreadable }, causeConfig, "gone"},
		"external":        {func(o *Options) { o.External = true }, causeAuth, "SASL"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out brokertest.Log
			o := options(t)
			o.Logger = out.Logger()
			tt.change(&o)
			_, err := NewDialer(o).Dial(t.Context())
			wantCause(t, err, tt.want, tt.text)
			if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "cause="+string(tt.want)) {
				t.Errorf("logged %d lines: %s", n, out.String())
			}
			if strings.Contains(fmt.Sprint(err)+out.String(), "canary") {
				t.Errorf("a password is shown: %v %s", err, out.String())
			}
		})
	}
}

func urls(u ...string) func() ([]string, error) { return func() ([]string, error) { return u, nil } }

func unreadable() (string, error) { return "", errors.New("gone") }

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	o := options(t, listen(t, func(net.Conn) {}))
	o.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	wantErr(t, errOf(NewDialer(o).Dial(ctx)), context.Canceled)
	wantErr(t, errOf(NewDialer(o).Dial(ctx)), context.Canceled)
}

func TestCredentialsOverrideTheURL(t *testing.T) {
	t.Parallel()
	const password = "p@ss:w/rd% ?#"
	user := brokertest.User(t, password)
	o := options(t, "amqp://stranger:wrong@"+strings.SplitN(brokertest.URL(t), "@", 2)[1])
	o.Username, o.Password = text(user), text(password)
	o.Name, o.Version = brokertest.Name(t, "shown"), "1.2.3"
	dial(t, o)
	brokertest.Eventually(t, time.Minute, "the connection in the broker's list", func() bool {
		for _, row := range brokertest.Rows(t, "connections", "user", "client_properties") {
			if shown := fmt.Sprint(row["client_properties"]); row["user"] == user {
				return strings.Contains(shown, o.Name) && strings.Contains(shown, "amqp-sidecar") && strings.Contains(shown, "1.2.3")
			}
		}
		return false
	})
}
