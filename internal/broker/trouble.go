package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"sidecar/internal/amqpwire"
	"sidecar/internal/telemetry"
)

// troubles bounds what the connections of a process log about a broker that cannot be reached: each trouble once, then
// once a minute.
type troubles struct {
	mu   sync.Mutex
	seen map[string]*telemetry.Throttle
}

// log calls log unless a connection has logged the same trouble within the last minute.
func (t *troubles) log(trouble string, log func(suppressed int)) {
	t.mu.Lock()
	throttle := t.seen[trouble]
	if throttle == nil {
		throttle = &telemetry.Throttle{Interval: time.Minute}
		t.seen[trouble] = throttle
	}
	t.mu.Unlock()
	throttle.Do(log)
}

// over forgets all troubles: a connection was made.
func (t *troubles) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.seen)
}

// fix returns what to do about the error of a dial; "" if the error says all that is known.
func (t target) fix(err error) string {
	_, noHost := errors.AsType[*net.DNSError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	_, stranger := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	tlsPort := t.uri.Scheme == "amqp" && t.uri.Port == 5671
	switch why := causeOf(err); {
	case noHost:
		return "check the host in SIDECAR_AMQP_URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check host and port in SIDECAR_AMQP_URL, and that the broker runs"
	case errors.Is(err, amqpwire.ErrPeerTLS), tlsPort && why == causeNetwork:
		return "this port wants TLS: amqps:// in SIDECAR_AMQP_URL, or the port without TLS, usually 5672"
	case errors.Is(err, amqpwire.ErrNotAMQP):
		return "check the port in SIDECAR_AMQP_URL: 5672 is the usual one, 15672 is the management API"
	case noTLS:
		return "this port has no TLS: amqp:// in SIDECAR_AMQP_URL, or the port with TLS, usually 5671"
	case stranger:
		return "SIDECAR_AMQP_TLS_CA_FILE names the file with the authority of the broker's certificate"
	case otherName:
		return "use a name of the certificate in SIDECAR_AMQP_URL, or set SIDECAR_AMQP_TLS_SERVER_NAME to it"
	case why == causeVhost:
		return fmt.Sprintf("the virtual host %q does not exist: it is the path of SIDECAR_AMQP_URL; or make it, with "+
			"rabbitmqctl add_vhost", t.uri.Vhost)
	case why == causeAuth:
		return fmt.Sprintf("check user %q and its password (SIDECAR_AMQP_USERNAME and SIDECAR_AMQP_PASSWORD, or "+
			"SIDECAR_AMQP_URL), and its right to the virtual host %q (rabbitmqctl set_permissions)", t.username, t.uri.Vhost)
	case why == causeTimeout:
		return "nothing answers there: check host and port in SIDECAR_AMQP_URL, firewalls and network policies"
	}
	return ""
}
