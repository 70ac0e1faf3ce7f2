package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// cause is the closed set of reasons why a connection ended or could not be made: the label of the reconnect counter.
type cause string

const (
	causeNetwork   cause = "network"   // refused, reset, closed, no such host
	causeTimeout   cause = "timeout"   // heartbeats stopped, or a call had no answer in time
	causeAuth      cause = "auth"      // user, password or right to the virtual host refused
	causeVhost     cause = "vhost"     // the virtual host does not exist
	causeTLS       cause = "tls"       // files, handshake or certificate
	causeBroker    cause = "broker"    // the broker closed the connection: shutdown, operator, protocol error
	causeChannel   cause = "channel"   // the broker closed a channel: a settlement or a declaration it does not accept
	causeCancelled cause = "cancelled" // the broker cancelled the consumer
	causeConfig    cause = "config"    // no usable URL or secret
	causeOther     cause = "other"
)

var causes = []cause{
	causeNetwork, causeTimeout, causeAuth, causeVhost, causeTLS, causeBroker, causeChannel, causeCancelled, causeConfig,
	causeOther,
}

var (
	errTLS    = errors.New("tls")             // marks what happened before or in the TLS handshake
	errConfig = errors.New("broker settings") // marks a URL or a secret that could not be read
)

// causeOf classifies the end of a session or of an attempt to make one.
func causeOf(err error) cause {
	var (
		closed *amqp.Error
		broken amqpwire.ProtocolError
		netErr net.Error
	)
	switch {
	case errors.Is(err, errConfig):
		return causeConfig
	case errors.Is(err, errTLS), isAlert(err):
		return causeTLS
	case errors.As(err, &broken):
		return causeBroker
	case errors.Is(err, ErrCancelled):
		return causeCancelled
	case errors.Is(err, ErrRefused):
		return causeChannel
	case errors.As(err, &closed):
		return causeOfClose(closed)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return causeTimeout
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, ErrDisconnected):
		return causeNetwork
	}
	return causeOther
}

func causeOfClose(e *amqp.Error) cause {
	switch e.Code {
	case amqp.AccessRefused, amqp.NotAllowed, amqp.InvalidPath:
		if strings.HasSuffix(e.Reason, " not found") {
			return causeVhost
		}
		return causeAuth
	}
	if e.Recover {
		return causeChannel
	}
	return causeBroker
}

// isAlert reports whether the peer, or package tls, has given up a connection: without a client certificate that is as
// late as the first read. The package reports it as a net.OpError with an unexported type inside.
func isAlert(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && (alert.Op == "remote error" || alert.Op == "local error")
}
