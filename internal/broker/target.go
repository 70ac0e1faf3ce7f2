package broker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// target is one URL with the credentials to use there.
type target struct {
	uri                amqp.URI
	username, password string
}

func (t target) addr() string { return net.JoinHostPort(t.uri.Host, strconv.Itoa(t.uri.Port)) }

func (d *Dialer) targets() ([]target, error) {
	urls, err := d.o.URLs()
	username, userErr := secret(d.o.Username)
	password, passwordErr := secret(d.o.Password)
	if err = cmp.Or(err, userErr, passwordErr); err == nil && len(urls) == 0 {
		err = errors.New("no URL is set")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	targets := make([]target, len(urls))
	for i, u := range urls {
		uri, err := amqp.ParseURI(u)
		if err != nil {
			// The parser's text may quote the URL, and with it a password.
			return nil, fmt.Errorf("%w: URL %d of %d is malformed", errConfig, i+1, len(urls))
		}
		targets[i] = target{uri, cmp.Or(username, uri.Username), cmp.Or(password, uri.Password)}
	}
	return targets, nil
}

// Where returns the addresses of the brokers, and the virtual host and the user of the first one.
func (d *Dialer) Where() (addrs []string, vhost, user string) {
	for i, t := range d.credentials() {
		if addrs = append(addrs, t.addr()); i == 0 {
			vhost, user = t.uri.Vhost, t.username
		}
	}
	return addrs, vhost, user
}

// credentials are the targets as they can be read now, none when they cannot.
func (d *Dialer) credentials() []target {
	targets, _ := d.targets() // Dial reports it
	return targets
}

func secret(read func() (string, error)) (string, error) {
	if read == nil {
		return "", nil
	}
	return read()
}
