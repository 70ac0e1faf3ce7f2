// Package management reads from RabbitMQ's management HTTP API what AMQP does not show of a topology: the arguments of
// existing queues, bindings, policies, and retry queues that the plan does not name any more. It changes nothing in the
// broker.
package management

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options say where the API is.
type Options struct {
	URL            string // http or https, without user; a path comes before /api
	User, Password string
	TLS            *tls.Config // nil: the certificates of the system
	Vhost          string      // the virtual host of the topology
}

const (
	timeout   = 10 * time.Second // for all requests together
	maxAnswer = 4 << 20          // bytes
	maxReason = 200              // bytes of the API's own text in an error
)

var errNotFound = errors.New("not found")

type client struct {
	o    Options
	http http.Client
}

func newClient(o Options) *client {
	return &client{o, http.Client{
		Transport: &http.Transport{TLSClientConfig: o.TLS, DisableCompression: true},
		// A redirect may lead to another host, which must not get the password.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// get decodes the answer to a GET of /api/SEGMENT/SEGMENT… into a value. Its errors name the URL, which holds no
// password; errNotFound is one of them.
func (c *client) get(ctx context.Context, into any, query string, segments ...string) error {
	path := []string{strings.TrimSuffix(c.o.URL, "/"), "api"}
	for _, s := range segments {
		path = append(path, escape(s))
	}
	target := strings.Join(path, "/")
	if query != "" {
		target += "?" + query
	}
	body, err := c.fetch(ctx, target)
	if err == nil && json.Unmarshal(body, into) != nil {
		err = errors.New("the answer is not the JSON that RabbitMQ's management API sends")
	}
	if err != nil {
		return fmt.Errorf("management API: GET %s: %w", target, err)
	}
	return nil
}

func (c *client) fetch(ctx context.Context, target string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(c.o.User, c.o.Password)
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, cause(err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	case answer.StatusCode == http.StatusOK:
		return body, nil
	}
	return nil, refusal(answer, body)
}

// cause is why a request had no answer. The URL, which the client library adds, is already in the error.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no complete answer in time")
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func refusal(answer *http.Response, body []byte) error {
	var said struct{ Reason string }
	if json.Unmarshal(body, &said) == nil && said.Reason != "" {
		said.Reason = fmt.Sprintf(": %.*q", maxReason, said.Reason)
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return errNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s%s: the user needs the right password, the tag management (rabbitmqctl set_user_tags USER "+
			"management) and permissions in the virtual host", answer.Status, said.Reason)
	}
	if to, err := answer.Location(); err == nil {
		return fmt.Errorf("%s to %s://%s: redirects are not followed, set SIDECAR_MANAGEMENT_URL to where the API is",
			answer.Status, to.Scheme, to.Host)
	}
	return fmt.Errorf("%s%s", answer.Status, said.Reason)
}

var escapes = strings.NewReplacer("+", "%20", ".", "%2E")

// escape encodes a segment of a path, also what servers differ in how they read: "." and "+".
func escape(s string) string { return escapes.Replace(url.QueryEscape(s)) }
