// Package brokertest gives each test a real RabbitMQ: a virtual host of its own on the node at AMQP_URL (see
// scripts/broker.sh), or, for a test that changes the node itself, a second node that one test uses at a time. It fakes
// nothing and never skips: without a broker the test fails.
package brokertest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"
)

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Name returns a name that no other test, nor another run of this one, uses: the beginning of the test's name, and
// label. It is short because the broker cuts the text of a refusal, which names the queue and its virtual host, at 255
// bytes.
func Name(t testing.TB, label string) string {
	t.Helper()
	test := notInNames.ReplaceAllString(t.Name(), "-")
	return fmt.Sprintf("%.32s.%s.%08x", test, label, rand.Uint32())
}

// Version returns the broker's version, e.g. "4.0.5".
func Version(t testing.TB) string {
	t.Helper()
	v, ok := Conn(t, URL(t)).Properties["version"].(string)
	if !ok {
		t.Fatal("the broker's properties hold no version")
	}
	return v
}

// Eventually fails the test when ok does not become true within limit. It is for effects that the broker applies
// asynchronously; limit is not an assertion about duration.
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
