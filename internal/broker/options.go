// Package broker keeps connections to RabbitMQ. A Session is one connection and its channels and is never revived: a
// delivery can only be settled on the session that received it. Supervise replaces a lost session by a new one, for
// ever; a Publisher publishes on a connection of its own and reports success only for messages that the broker
// confirmed and did not return.
//
// It declares nothing, decides nothing about messages, and never uses the client library's own recovery, which acks by
// a bare tag across reconnects and so settles messages it never saw.
package broker

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/budget"
)

const (
	defaultTimeout   = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultBackoff   = 500 * time.Millisecond
)

// Options say where the broker is and how to get in. Every function is called on every dial, so that secrets may
// rotate.
type Options struct {
	URLs      func() ([]string, error) // amqp or amqps URLs, tried in turn
	Username  func() (string, error)   // "" (or a nil function) leaves the URL's
	Password  func() (string, error)   // "" (or a nil function) leaves the URL's
	TLS       TLSOptions
	External  bool          // SASL EXTERNAL: the client certificate says who we are
	Heartbeat time.Duration // whole seconds; 0 = 10 s. A heartbeat in the URL is ignored
	Timeout   time.Duration // for each dial and each call to the broker; 0 = 10 s
	Patience  time.Duration // for each call, where that is more than Timeout: a queue may be busy with itself
	Backoff   time.Duration // the longest first pause before another connection is tried; 0 = 500 ms
	Name      string        // the connection's name in the broker's own tools
	Version   string        // our version, for the same place
	Logger    *slog.Logger  // nil = silent

	// Connect opens the connection to a host and port; nil = TCP with keepalive. TLS, if any, runs on top of it.
	Connect func(ctx context.Context, addr string) (net.Conn, error)

	// Missing is called when the broker refuses a call because an exchange or a queue is missing, and when it returns a
	// message, perhaps because a binding is: with a RefusedError or a ReturnedError. May be nil. It must not block.
	Missing func(why error)

	// Memory is asked before a delivery is held, which goes with Delivery.Free; nil bounds nothing.
	Memory *budget.Account

	// Spool takes the bodies of deliveries that are larger than all of Memory, or that waited for it in vain; nil: they
	// are read and dropped.
	Spool *Spool

	// MemoryPatience is how long a delivery waits for memory before it goes to the spool; 0 = 10 s. Who cannot give memory
	// back before other deliveries have come sets less.
	MemoryPatience time.Duration

	// Registerer takes the metrics; nil = none. Dialers with the same Registerer share one set: they are the
	// connections of one process.
	Registerer prometheus.Registerer

	// Alarm is shared by the connections of a process; nil = one that only this Dialer's sessions have.
	Alarm *Alarm

	// Exchange is one that the user may publish to: a Publisher asks there whether an alarm blocks it. "" is the default
	// exchange.
	Exchange string

	// Tests set them; 0 = the constants of these names.
	closeTimeout, blockedPatience, credentialsPoll, steady, nackedLimit, alarmPoll time.Duration
}

// TLSOptions are PEM files, read again on every dial; "" = the system's authorities, no client certificate, and the
// host of the URL as the name that the server must prove.
type TLSOptions struct {
	CAFile, CertFile, KeyFile string
	ServerName                string
}

func (o *Options) setDefaults() {
	o.Heartbeat = cmp.Or(o.Heartbeat, defaultHeartbeat)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Backoff = cmp.Or(o.Backoff, defaultBackoff)
	o.closeTimeout = cmp.Or(o.closeTimeout, closeTimeout)
	o.blockedPatience = cmp.Or(o.blockedPatience, blockedPatience)
	o.credentialsPoll = cmp.Or(o.credentialsPoll, credentialsPoll)
	o.steady = cmp.Or(o.steady, steady)
	o.nackedLimit = cmp.Or(o.nackedLimit, nackedLimit)
	if o.Connect == nil {
		o.Connect = dialTCP
	}
	o.alarmPoll = cmp.Or(o.alarmPoll, alarmPoll)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Alarm == nil {
		o.Alarm = NewAlarm(o.Logger)
	}
}
