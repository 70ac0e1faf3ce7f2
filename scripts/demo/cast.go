package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

var listening = regexp.MustCompile(`listening on (http://\S+)`)

// startApp starts the Python app on port ("0" takes a free one) and waits until it listens.
func startApp(ctx context.Context, o options, name, port string) (*child, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, err
	}
	c, err := startChild(o, name, os.Environ(), python, o.app, port)
	if err != nil {
		return nil, err
	}
	return c, c.await(ctx, "listening", func() bool {
		found := listening.FindSubmatch(c.output())
		if found != nil {
			c.address = string(found[1])
		}
		return found != nil
	})
}

// port is the one the app listens on, so that a second app can take its place.
func port(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "0"
	}
	return u.Port()
}

// startSidecar starts the sidecar with nothing but environment variables and waits until it is ready.
func startSidecar(ctx context.Context, o options, app string) (*child, error) {
	c, err := startChild(o, "sidecar", environment(o, app), o.sidecar, "run")
	if err != nil {
		return nil, err
	}
	return c, c.await(ctx, "ready", func() bool {
		if c.address == "" {
			c.address = c.addresses().admin()
		}
		return c.address != "" && ready(ctx, c.address)
	})
}

// environment is the whole configuration, of the sidecar and of its commands.
func environment(o options, app string) []string {
	return []string{
		"SIDECAR_SERVICE=" + service,
		"SIDECAR_AMQP_URL=" + o.amqpURL,
		"SIDECAR_APP_URL=" + app,
		"SIDECAR_RETRY_DELAY=" + retryDelay.String(),
		"SIDECAR_MAX_RETRIES=" + strconv.Itoa(maxRetries),
		"SIDECAR_REQUEUE_DELAY_MAX=1s",
		"SIDECAR_APP_HEALTH_INTERVAL=250ms",
		"SIDECAR_ADMIN_ADDR=127.0.0.1:0",
		"SIDECAR_CONTROL_ADDR=127.0.0.1:0",
		"SIDECAR_PUBLISH_ADDR=127.0.0.1:0",
		"SIDECAR_OUTBOX_DSN=" + o.postgres,
		"SIDECAR_LOG_LEVEL=debug", // a success is logged at debug
	}
}

// addresses are those the sidecar bound, of its line "listening".
type addresses struct{ Admin, Control, Publish string }

func (c *child) addresses() addresses {
	for _, line := range lines(c.output()) {
		var a addresses
		if json.Unmarshal(line, &a) == nil && a.Admin != "" && a.Control != "" {
			return a
		}
	}
	return addresses{}
}

func (a addresses) admin() string {
	if _, _, err := net.SplitHostPort(a.Admin); err != nil {
		return ""
	}
	return "http://" + a.Admin
}

func ready(ctx context.Context, admin string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
