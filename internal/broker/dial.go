package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/telemetry"
)

// Dialer makes sessions.
type Dialer struct {
	o          Options
	metrics    *metrics
	generation atomic.Uint64
	hidden     telemetry.Throttle // lines about header values

	tries atomic.Uint32 // of URLs, so far

	failure atomic.Pointer[func() error] // see Failure; nil: none yet
}

// NewDialer returns a Dialer; it connects to nothing yet.
func NewDialer(o Options) *Dialer {
	o.setDefaults()
	return &Dialer{o: o, metrics: metricsOf(o.Registerer)}
}

// Dial tries every URL once, each with its own deadline, starting with a different one each time, and returns the first
// session that is established. Failed attempts are logged. The error joins them all and contains no
// secret.
func (d *Dialer) Dial(ctx context.Context) (*Session, error) {
	targets, err := d.targets()
	if err != nil {
		d.logFailed("", err, "")
		return nil, err
	}
	var failed []error
	for range targets {
		if ctx.Err() != nil {
			return nil, errors.Join(append(failed, context.Cause(ctx))...)
		}
		// Also after one that worked the next URL has its turn: a broker that takes connections and drops them must not be
		// the first choice for ever.
		t := targets[int(d.tries.Add(1)-1)%len(targets)]
		s, err := d.dial(ctx, t)
		if err == nil {
			d.metrics.troubles.Clear()
			d.o.Logger.Info("broker connected", "connection", d.o.Name, "broker", t.addr(), "vhost", t.uri.Vhost,
				"generation", s.Generation())
			return s, nil
		}
		fix := t.fix(err)
		if ctx.Err() == nil {
			d.logFailed(t.addr(), err, fix)
		}
		if err = fmt.Errorf("connect to %s: %w", t.addr(), err); fix != "" {
			err = fmt.Errorf("%w: %s", err, fix)
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

func (d *Dialer) logFailed(addr string, err error, fix string) {
	why := string(causeOf(err))
	d.trouble(addr+why+fix, func(suppressed int) {
		d.o.Logger.Warn("broker connection failed", "broker", addr, "cause", why, "error", err, "fix", fix,
			"connection", d.o.Name, "suppressed", suppressed)
	})
}

// dial makes one session. Until it is established, a deadline or the end of ctx closes the socket, which ends every
// step.
func (d *Dialer) dial(ctx context.Context, t target) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	raw, err := d.o.Connect(ctx, t.addr())
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { amqpwire.CloseNow(raw) })()
	s, err := d.establish(ctx, raw, t)
	if err != nil {
		amqpwire.CloseNow(raw)
		if ctx.Err() != nil { // that is why a step failed
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	return s, err
}

func (d *Dialer) establish(ctx context.Context, raw net.Conn, t target) (*Session, error) {
	conn := raw
	if t.uri.Scheme == "amqps" {
		secure, err := startTLS(ctx, raw, d.o.TLS, t.uri.Host)
		if err != nil {
			return nil, err
		}
		conn = secure
	}
	w := amqpwire.New(conn, raw, amqpwire.Options{
		Memory: d.o.Memory, Patience: d.o.MemoryPatience, Spool: d.o.Spool, Hidden: d.logHidden,
	})
	c, err := amqp.Open(w, d.config(t))
	if err != nil {
		return nil, handshakeCause(ctx, err, w)
	}
	// Twice the negotiated interval: the broker sends a heartbeat every half.
	idle := 2 * cmp.Or(c.Config.Heartbeat, d.o.Heartbeat)
	if err := w.Established(idle, c.Config.FrameSize); err != nil {
		return nil, err
	}
	return newSession(c, w, d, t.addr()), nil
}

func (d *Dialer) config(t target) amqp.Config {
	var auth amqp.Authentication = &amqp.PlainAuth{Username: t.username, Password: t.password}
	if d.o.External {
		auth = &amqp.ExternalAuth{}
	}
	properties := amqp.Table{"product": "amqp-sidecar", "platform": "Go", "connection_name": d.o.Name}
	if d.o.Version != "" {
		properties["version"] = d.o.Version
	}
	return amqp.Config{
		SASL:       []amqp.Authentication{auth},
		Vhost:      t.uri.Vhost,
		FrameSize:  amqpwire.FrameMax,
		Heartbeat:  max(d.o.Heartbeat.Truncate(time.Second), time.Second),
		Properties: properties,
		Locale:     "en_US",
	}
}

// handshakeCause repairs two defects of the client library: it turns errors of the connection into text, and it calls
// every connection that ends while the broker checks credentials or virtual host a refusal. The broker does refuse a
// login by closing the connection without an error; but when we closed it because the broker was silent, nothing was
// refused.
func handshakeCause(ctx context.Context, err error, w *amqpwire.Wire) error {
	var closed *amqp.Error
	if errors.As(err, &closed) && closed.Server {
		return err
	}
	guess := errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost)
	if guess && ctx.Err() != nil {
		return errors.New("handshake: no answer")
	}
	cause := w.Err()
	if cause == nil || guess && causeOf(cause) == causeNetwork {
		return err
	}
	return fmt.Errorf("handshake: %w", cause)
}

func (d *Dialer) logHidden(n int) {
	d.hidden.Do(func(suppressed int) {
		d.o.Logger.Warn("header values hidden",
			slog.String("connection", d.o.Name), slog.Int("values", n), slog.Int("suppressed", suppressed))
	})
}
