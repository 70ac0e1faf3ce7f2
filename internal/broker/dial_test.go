package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
		"unknown vhost":   {func(o *Options) { o.URLs = urls(strings.TrimSuffix(url, "/") + "/missing") }, causeVhost, `missing" does not exist`},
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

// secure is the URL of a TLS proxy in front of the broker.
func secure(t *testing.T, config *tls.Config) (*brokertest.Proxy, string) {
	t.Helper()
	url := brokertest.URL(t)
	p := brokertest.NewTLSProxy(t, url, config)
	return p, strings.Replace(p.URL(t, url), "amqp://", "amqps://", 1)
}

func TestTLSConsumes(t *testing.T) {
	t.Parallel()
	ca := brokertest.NewAuthority(t)
	_, url := secure(t, ca.ServerConfig(t, "127.0.0.1"))
	o := options(t, url)
	o.TLS.CAFile = ca.CAFile()
	s := dial(t, o)
	q := queue(t)
	body := strings.Repeat("x", 500_000)
	brokertest.Send(t, brokertest.URL(t), q, body)
	sub, deliveries := subscribe(t, s, q, 1)
	if d := next(t, deliveries); string(d.Body) != body || sub.Ack(d.DeliveryTag, false) != nil {
		t.Error("the message changed on its way")
	}
	s.Kill() // an abrupt end below TLS must leave nothing behind either
}

func TestTLSRefusesAServerItCannotTrust(t *testing.T) {
	t.Parallel()
	ca, other := brokertest.NewAuthority(t), brokertest.NewAuthority(t)
	_, wrongName := secure(t, ca.ServerConfig(t, "broker.example"))
	_, noName := secure(t, ca.ServerConfig(t))
	_, right := secure(t, ca.ServerConfig(t, "127.0.0.1"))
	old := ca.ServerConfig(t, "127.0.0.1")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, oldTLS := secure(t, old)
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	must.Do(t, os.WriteFile(noPEM, []byte("not a certificate"), 0o600))
	mutual := ca.ServerConfig(t, "127.0.0.1")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	_, asking := secure(t, mutual)
	strange, strangeKey := other.Issue(t, "stranger")
	certFile, _ := ca.Issue(t, "client")
	_, otherKey := ca.Issue(t, "other client")
	tests := map[string]struct {
		url  string
		tls  TLSOptions
		text string
	}{
		"wrong name":         {wrongName, TLSOptions{CAFile: ca.CAFile()}, "127.0.0.1"},
		"no name":            {noName, TLSOptions{CAFile: ca.CAFile()}, "127.0.0.1"},
		"another name asked": {right, TLSOptions{CAFile: ca.CAFile(), ServerName: "broker.example"}, "broker.example"},
		"another authority":  {right, TLSOptions{CAFile: other.CAFile()}, "unknown authority"},
		"system authorities": {right, TLSOptions{}, "unknown authority"},
		"an old protocol":    {oldTLS, TLSOptions{CAFile: ca.CAFile()}, "protocol version"},
		"no CA file":         {right, TLSOptions{CAFile: "/does/not/exist"}, "/does/not/exist"},
		"CA file not PEM":    {right, TLSOptions{CAFile: noPEM}, "no certificate"},
		"key missing":        {right, TLSOptions{CAFile: ca.CAFile(), CertFile: certFile}, "both"},
		"key of another":     {right, TLSOptions{CAFile: ca.CAFile(), CertFile: certFile, KeyFile: otherKey}, "match"},
		"no certificate":     {asking, TLSOptions{CAFile: ca.CAFile()}, "certificate required"},
		"a stranger's":       {asking, TLSOptions{CAFile: ca.CAFile(), CertFile: strange, KeyFile: strangeKey}, "unknown certificate authority"},
		"no TLS there":       {strings.Replace(brokertest.URL(t), "amqp://", "amqps://", 1), TLSOptions{CAFile: ca.CAFile()}, "TLS handshake"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, tt.url)
			o.TLS, o.Timeout = tt.tls, time.Minute // the authorities of the system take seconds to read on a busy machine
			wantCause(t, errOf(NewDialer(o).Dial(t.Context())), causeTLS, tt.text)
		})
	}
	o := options(t, wrongName)
	o.TLS = TLSOptions{CAFile: ca.CAFile(), ServerName: "broker.example"}
	dial(t, o)
}

// TestCertificatesRotateUnderARunningSession: the authority of both sides is replaced while a session is up. It stays;
// the next one is made with the new files. In between, when only one of a pair has been written, the dialer goes on
// trying.
func TestCertificatesRotateUnderARunningSession(t *testing.T) {
	t.Parallel()
	before, after := brokertest.NewAuthority(t), brokertest.NewAuthority(t)
	now := atomic.Pointer[brokertest.Authority]{}
	now.Store(before)
	configs := map[*brokertest.Authority]*tls.Config{}
	for _, ca := range []*brokertest.Authority{before, after} {
		c := ca.ServerConfig(t, "127.0.0.1")
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
		configs[ca] = c
	}
	proxy, url := secure(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return configs[now.Load()], nil }})
	dir := t.TempDir()
	o := options(t, url)
	o.TLS = TLSOptions{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	mount := func(from, to string) {
		pem := must.Get(os.ReadFile(from))(t)
		must.Do(t, os.WriteFile(to, pem, 0o600))
	}
	certFile, keyFile := before.Issue(t, "client")
	mount(before.CAFile(), o.TLS.CAFile)
	mount(certFile, o.TLS.CertFile)
	mount(keyFile, o.TLS.KeyFile)
	r := prometheus.NewRegistry()
	o.Registerer = r
	sessions := make(chan *Session, 10)
	supervise(t, NewDialer(o), wait(sessions))
	s := <-sessions
	now.Store(after)
	certFile, keyFile = after.Issue(t, "client")
	mount(after.CAFile(), o.TLS.CAFile)
	mount(certFile, o.TLS.CertFile)
	if s.Err() != nil {
		t.Errorf("the rotation ended the session: %v", s.Err())
	}
	proxy.Cut()
	brokertest.Eventually(t, 60*time.Second, "an attempt with half a pair", func() bool { return reconnects(t, r, causeTLS) >= 1 })
	mount(keyFile, o.TLS.KeyFile)
	<-sessions
}

func TestSASLExternalLeavesTheCredentialsOut(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	var p *brokertest.Peer
	url := listen(t, func(c net.Conn) {
		p = &brokertest.Peer{Conn: c}
		wg.Go(func() { p.Serve("PLAIN EXTERNAL") })
	})
	o := options(t, url)
	o.External = true
	s := must.Get(NewDialer(o).Dial(t.Context()))(t)
	s.Close()
	wg.Wait()
	if p.Mechanism != "EXTERNAL" {
		t.Errorf("the client chose %q", p.Mechanism)
	}
}
