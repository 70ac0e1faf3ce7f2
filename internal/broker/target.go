package broker

import (
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
	if err != nil {
		return nil, &configError{fmt.Errorf("read the broker's URL: %w", err)}
	}
	if len(urls) == 0 {
		return nil, &configError{errors.New("no broker URL is set")}
	}
	username, err := secret(d.o.Username)
	if err != nil {
		return nil, &configError{fmt.Errorf("read the broker's user name: %w", err)}
	}
	password, err := secret(d.o.Password)
	if err != nil {
		return nil, &configError{fmt.Errorf("read the broker's password: %w", err)}
	}
	targets := make([]target, len(urls))
	for i, u := range urls {
		uri, err := amqp.ParseURI(u)
		if err != nil {
			// The parser's text may quote the URL, and with it a password.
			return nil, &configError{fmt.Errorf("broker URL %d of %d is malformed", i+1, len(urls))}
		}
		t := target{uri: uri, username: uri.Username, password: uri.Password}
		if username != "" {
			t.username = username
		}
		if password != "" {
			t.password = password
		}
		targets[i] = t
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
