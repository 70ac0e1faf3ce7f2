package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// cause is the closed set of reasons why a connection ended or could not be made: the label of the reconnect counter.
type cause string

const (
	causeNetwork   cause = "network"   // refused, reset, closed, no such host
	causeTimeout   cause = "timeout"   // heartbeats stopped, or a call had no answer in time
	causeAuth      cause = "auth"      // credentials or virtual host refused
	causeTLS       cause = "tls"       // files, handshake or certificate
	causeBroker    cause = "broker"    // the broker closed the connection: shutdown, operator, protocol error
	causeChannel   cause = "channel"   // the broker closed a channel: a settlement or a declaration it does not accept
	causeCancelled cause = "cancelled" // the broker cancelled the consumer
	causeConfig    cause = "config"    // no usable URL or secret
	causeOther     cause = "other"
)

var causes = []cause{
	causeNetwork, causeTimeout, causeAuth, causeTLS, causeBroker, causeChannel, causeCancelled, causeConfig, causeOther,
}

// tlsError marks what happened before or in the TLS handshake, where the types of the errors do not distinguish it.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return "tls: " + e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// configError marks a URL or a secret that could not be read.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// causeOf classifies the end of a session or of an attempt to make one.
func causeOf(err error) cause {
	var (
		config *configError
		closed *amqp.Error
		broken amqpwire.ProtocolError
		netErr net.Error
	)
	switch {
	case errors.As(err, &config):
		return causeConfig
	case isTLS(err):
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
		return causeAuth
	}
	if e.Recover {
		return causeChannel
	}
	return causeBroker
}

func isTLS(err error) bool {
	var (
		ours     *tlsError
		alert    *net.OpError
		record   tls.RecordHeaderError
		verify   *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	// Package tls reports an alert as a net.OpError with these operations and an unexported type inside.
	if errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error") {
		return true
	}
	return errors.As(err, &ours) || errors.As(err, &record) || errors.As(err, &verify) ||
		errors.As(err, &unknown) || errors.As(err, &hostname)
}
