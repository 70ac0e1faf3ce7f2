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
