package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"sidecar/internal/amqpwire"
	"sidecar/internal/telemetry"
)

// trouble calls log once for all connections of the process, and then once a minute, until one connects.
func (d *Dialer) trouble(what string, log func(suppressed int)) {
	t, _ := d.metrics.troubles.LoadOrStore(what, &telemetry.Throttle{Interval: time.Minute})
	t.(*telemetry.Throttle).Do(log) //nolint:forcetypeassert // nothing else is stored
}

// fix returns what to do about the error of a dial; "" if the error says all that is known.
func (t target) fix(err error) string {
	_, noHost := errors.AsType[*net.DNSError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	_, stranger := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	why, tlsPort := causeOf(err), t.uri.Scheme == "amqp" && t.uri.Port == 5671
	for _, f := range []struct {
		applies bool
		fix     string
	}{
		{noHost, "check the host in SIDECAR_AMQP_URL"},
		{errors.Is(err, syscall.ECONNREFUSED), "nothing listens there: check host and port in SIDECAR_AMQP_URL, and that " +
			"the broker runs"},
		{errors.Is(err, amqpwire.ErrPeerTLS) || tlsPort && why == causeNetwork, "this port wants TLS: amqps:// in " +
			"SIDECAR_AMQP_URL, or the port without TLS, usually 5672"},
		{errors.Is(err, amqpwire.ErrNotAMQP), "check the port in SIDECAR_AMQP_URL: AMQP has 5672, the API 15672"},
		{errors.Is(err, io.EOF), "what listens there does not speak AMQP, or wants TLS (amqps://): check the port in " +
			"SIDECAR_AMQP_URL, usually 5672"},
		{noTLS, "this port has no TLS: amqp:// in SIDECAR_AMQP_URL, or the port with TLS, usually 5671"},
		{stranger, "SIDECAR_AMQP_TLS_CA_FILE names the file with the authority of the broker's certificate"},
		{otherName, "use a name of the certificate in SIDECAR_AMQP_URL, or set SIDECAR_AMQP_TLS_SERVER_NAME to it"},
		{why == causeVhost, "the virtual host " + strconv.Quote(t.uri.Vhost) + " does not exist: it is the path of " +
			"SIDECAR_AMQP_URL; or make it, with rabbitmqctl add_vhost"},
		{why == causeAuth, "check user " + strconv.Quote(t.username) + ", its password (SIDECAR_AMQP_USERNAME, " +
			"SIDECAR_AMQP_PASSWORD or SIDECAR_AMQP_URL) and its right to the virtual host (rabbitmqctl set_permissions)"},
		{why == causeTimeout, "nothing answers: check host and port in SIDECAR_AMQP_URL, firewalls and network policies"},
	} {
		if f.applies {
			return f.fix
		}
	}
	return ""
}
