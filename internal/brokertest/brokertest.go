// Package brokertest gives tests a real RabbitMQ: the one at AMQP_URL (see scripts/broker.sh). It starts none, fakes
// none and never skips: without a broker the test fails.
package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// URL returns the broker's URL with rights to everything.
func URL(t testing.TB) string {
	t.Helper()
	u := os.Getenv("AMQP_URL")
	if u == "" {
		t.Fatal("AMQP_URL is unset: run the tests below scripts/broker.sh run 0 …")
	}
	return u
}

// Ctl runs rabbitmqctl on the broker's node and returns its output without table headers. It takes about a second.
func Ctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := ctl(args...)
	if err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func ctl(args ...string) (string, error) {
	path := os.Getenv("BROKER_CTL")
	if path == "" {
		return "", fmt.Errorf("BROKER_CTL is unset: run the tests below scripts/broker.sh run 0 …")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, append([]string{"-q"}, args...)...).CombinedOutput()
	return string(out), err
}

// CtlLater runs rabbitmqctl when the test ends, whatever becomes of it: the way to undo an alarm or a password.
func CtlLater(t testing.TB, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := ctl(args...); err != nil {
			t.Errorf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	})
}

// Vhost creates a virtual host for this test alone and returns the URL of the broker with it. Two calls of rabbitmqctl:
// where unique names do, Name is faster.
func Vhost(t testing.TB) string {
	t.Helper()
	base, err := url.Parse(URL(t))
	if err != nil {
		t.Fatal("AMQP_URL cannot be parsed")
	}
	name := Name(t, "vhost")
	Ctl(t, "add_vhost", name)
	CtlLater(t, "delete_vhost", name)
	Ctl(t, "set_permissions", "-p", name, base.User.Username(), ".*", ".*", ".*")
	base.Path = "/" + name
	return base.String()
}

// User creates a user for this test alone, with all rights in the virtual host of the broker's URL, and returns its name.
func User(t testing.TB, password string) string {
	t.Helper()
	base, err := url.Parse(URL(t))
	if err != nil {
		t.Fatal("AMQP_URL cannot be parsed")
	}
	name := Name(t, "user")
	Ctl(t, "add_user", name, password)
	CtlLater(t, "delete_user", name)
	vhost := "/"
	if len(base.Path) > 1 {
		vhost = base.Path[1:]
	}
	Ctl(t, "set_permissions", "-p", vhost, name, ".*", ".*", ".*")
	return name
}

// MaxSize makes the broker refuse larger bodies than that, in bytes, until the test has ended. Channels that are open already
// keep what they have.
func MaxSize(t testing.TB, bytes int) {
	t.Helper()
	// Newer brokers read it from a place of its own.
	const set = "application:set_env(rabbit, max_message_size, %s), persistent_term:put(max_message_size, %s)."
	was := strings.TrimSpace(Ctl(t, "eval", "{ok, N} = application:get_env(rabbit, max_message_size), N."))
	CtlLater(t, "eval", fmt.Sprintf(set, was, was))
	Ctl(t, "eval", fmt.Sprintf(set, strconv.Itoa(bytes), strconv.Itoa(bytes)))
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Name returns a name no other test, nor another run of this one, uses; it holds the test's name and label.
func Name(t testing.TB, label string) string {
	t.Helper()
	test := notInNames.ReplaceAllString(t.Name(), "-")
	if len(test) > 80 {
		test = test[:80]
	}
	return fmt.Sprintf("%s.%s.%08x", test, label, rand.Uint32())
}

// Version returns the broker's version, e.g. "4.0.5".
func Version(t testing.TB) string {
	t.Helper()
	v, ok := Conn(t, URL(t)).Properties["version"].(string)
	if !ok {
		t.Fatal("the broker does not tell its version")
	}
	return v
}

// Eventually fails the test when ok does not become true within limit. It is for what the broker does behind our back
// and makes no statement about time.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still not true after %v: %s", limit, what)
		}
	}
}
