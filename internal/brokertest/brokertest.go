// Package brokertest gives each test a real RabbitMQ: a virtual host of its own on the node at AMQP_URL (see
// scripts/broker.sh), or, for a test that changes the node itself, a second node that one test uses at a time. It fakes
// nothing and never skips: without a broker the test fails.
package brokertest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
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
	eventually(t, limit, func() (bool, string) { return ok(), what })
}

// eventually waits until seen returns true; its text says what was seen last.
func eventually(t testing.TB, limit time.Duration, seen func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		ok, what := seen()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still not true after %v: %s", limit, what)
		}
	}
}

// delaying is the first version of RabbitMQ whose quorum queues delay retries themselves.
const delaying = "4.3"

// Delaying gives the test its place on a RabbitMQ 4.3: the node that all tests share where it is one, else a node
// beside it, which the first such test boots and such tests use at the same time. Call it where OwnNode would be
// called.
func Delaying(t testing.TB) {
	t.Helper()
	if !sharedDelays(t) {
		borrow(t, delaying, delaying, syscall.LOCK_SH)
	}
}

func sharedDelays(t testing.TB) bool {
	t.Helper()
	version := sharedNode(t).must(t, "rabbit_misc:version()")
	return strings.HasPrefix(version, `"`+delaying+".")
}

// Log collects log lines. A test may read them while others are written.
type Log = apptest.Log

// Metric returns the sum of the metric's series that have the labels, given as names and values. A histogram counts as
// the number of its observations.
func Metric(t testing.TB, r prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, f := range must.Get(r.Gather())(t) {
		for _, m := range f.GetMetric() {
			missing := len(labels) / 2
			for _, l := range m.GetLabel() {
				for i := 0; i < len(labels); i += 2 {
					if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
						missing--
					}
				}
			}
			if f.GetName() == name && missing == 0 {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// NamedHeader is a content header for benchmarks.
type NamedHeader struct {
	Name   string
	Header []byte
	Allocs float64 // at most, to read it
}

// BenchHeaders returns content headers with few and many entries.
func BenchHeaders() []NamedHeader {
	death := append([]byte{'F'}, Container(
		Field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1), Field("reason", 'S', Long("rejected")...),
		Field("queue", 'S', Long("wms.queue.wms-cincout")...), Field("time", 'T', 0, 0, 0, 0, 0, 0, 0, 1),
		Field("exchange", 'S', Long("wms.main-exchange")...),
		Field("routing-keys", 'A', Container(append([]byte{'S'}, Long("order.created")...))...))...)
	plain := func(n int) []byte {
		return Header(Many(n, func(i int) []byte {
			return Field(fmt.Sprintf("x-tenant-%02d", i), 'S', Long(fmt.Sprintf("value-%d", i))...)
		}))
	}
	none := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0x90, 0)
	none = append(append(none, Short("text/plain")...), 2)
	return []NamedHeader{
		{"headers=0", none, 0}, {"headers=8", plain(8), 13}, {"headers=64", plain(64), 71},
		{"deaths=2", Header(Field("x-death", 'A', Container(death, death)...)), 25},
	}
}

// BenchDelivery encodes one message of 1 KiB in frames, to the consumer tag.
func BenchDelivery(tag string, header []byte) []byte {
	const size = 1024
	binary.BigEndian.PutUint64(header[4:], size)
	d := Frame(1, 1, Method(60, 60, Short(tag), make([]byte, 9), Short("wms.main-exchange"), Short("order.created")))
	d = append(d, Frame(2, 1, header)...)
	return append(d, Frame(3, 1, make([]byte, size))...)
}
