package calibrate

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/sim/model"
)

var update = flag.Bool("update", false, "write what the real broker said as the golden transcript of its version")

func golden(v model.Version) string { return filepath.Join("testdata", "broker-"+v.String()+".golden") }

// TestModelIsCalibrated compares the model with what the real brokers said.
func TestModelIsCalibrated(t *testing.T) {
	t.Parallel()
	for _, v := range model.Versions {
		t.Run(v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := model.New(model.Options{Version: v, Seed: 1})
				same(t, v, play(t, func() (*amqp.Connection, error) {
					conn, err := b.Dial(t.Context(), "script")
					if err != nil {
						return nil, err
					}
					return amqp.Open(conn, amqp.Config{
						SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/",
					})
				}))
			})
		})
	}
}

// TestGoldenIsReal compares the golden transcript with the broker that is there.
func TestGoldenIsReal(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	v := lineOf(t, url)
	said := play(t, func() (*amqp.Connection, error) { return amqp.Dial(url) })
	said = strings.ReplaceAll(said, "vhost '"+brokertest.VhostName(t)+"'", "vhost '/'")
	if *update {
		if err := os.WriteFile(golden(v), []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same(t, v, said)
}

// lineOf is the newest line that has been compared and is not newer than the broker.
func lineOf(t *testing.T, url string) model.Version {
	t.Helper()
	said, _ := brokertest.Conn(t, url).Properties["version"].(string)
	var major, minor int
	if _, err := fmt.Sscanf(said, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("the broker's version is %q: %v", said, err)
	}
	line := model.V310
	for _, v := range model.Versions {
		of := strings.Split(v.String(), ".")
		x, _ := strconv.Atoi(of[0])
		y, _ := strconv.Atoi(of[1])
		if major > x || major == x && minor >= y {
			line = v
		}
	}
	return line
}

func same(t *testing.T, v model.Version, said string) {
	t.Helper()
	b, err := os.ReadFile(golden(v))
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(string(b), said); d != "" {
		t.Errorf("not what RabbitMQ %s said: %s", v, d)
	}
}

// difference names the first line in which two transcripts differ, and its scene; "" when they are the same.
func difference(golden, said string) string {
	want, got := strings.Split(golden, "\n"), strings.Split(said, "\n")
	scene := ""
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if strings.HasPrefix(w, "#") {
			scene = w
		}
		if w != g {
			return fmt.Sprintf("%s, line %d: want %q, got %q", scene, i+1, w, g)
		}
	}
	return ""
}

// script talks to a broker, real or model, and records the answers. Whatever depends on time waits for an event;
// what must not happen is shown by a later message that took the same way.
type script struct {
	t      testing.TB
	dial   func() (*amqp.Connection, error)
	conn   *amqp.Connection
	ch     *amqp.Channel
	out    strings.Builder
	queues []string
}

const (
	shortTTL    = 60   // ms that a message waits in a wait queue
	findableTTL = 1500 // ms, for a scene that takes it out of there: a busy machine may stall
	patience    = 60 * time.Second
)

// play runs every scene and returns the transcript.
func play(t testing.TB, dial func() (*amqp.Connection, error)) string {
	t.Helper()
	s := &script{t: t, dial: dial}
	s.conn = s.connect()
	scenes := []struct {
		name string
		play func()
	}{
		{"tags restart at 1", s.tags},
		{"an unknown tag", s.unknownTag},
		{"rejected, expired, back, classic", func() { s.retries("rc", nil) }},
		{"rejected, expired, back, quorum", func() {
			s.retries("rq", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
		}},
		{"published again with its history", s.republished},
		{"an automatic cycle", s.automaticCycle},
		{"expired once, moved by hand, then rejected", s.movedByHand},
		{"three entries of x-death", s.threeDeaths},
		{"a time to live behind a longer one", s.headOfLine},
		{"rejected to a missing queue", s.missing},
		{"requeued, classic", func() { s.requeued("oc", nil) }},
		{"requeued, quorum", func() { s.requeued("oq", amqp.Table{"x-queue-type": "quorum"}) }},
		{"returned to a quorum queue", s.returned},
		{"a count that a publisher wrote as text, classic", func() { s.writtenCount("wc", nil) }},
		{"a count that a publisher wrote as text, quorum", func() { s.writtenCount("wq", amqp.Table{"x-queue-type": "quorum"}) }},
		{"delivery limit", s.deliveryLimit},
		{"rejected with requeue to a queue that delays it", s.delayed},
		{"delays that grow", s.growing},
		{"unroutable", s.unroutable},
		{"confirms", s.confirms},
		{"queue deleted under a consumer", s.cancelled},
	}
	for _, scene := range scenes {
		s.say("# %s", scene.name)
		s.ch = s.channel()
		scene.play()
		_ = s.ch.Close()
	}
	s.tidy()
	_ = s.conn.Close()
	return s.out.String()
}

func (s *script) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.out.WriteString(line + "\n")
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\nso far:\n%s", err, s.out.String())
	}
}

func (s *script) connect() *amqp.Connection {
	c, err := s.dial()
	s.must(err)
	return c
}

func (s *script) channel() *amqp.Channel {
	ch, err := s.conn.Channel()
	s.must(err)
	return ch
}

func (s *script) queue(name string, args amqp.Table) string {
	_, err := s.ch.QueueDeclare(name, true, false, false, false, args)
	s.must(err)
	s.queues = append(s.queues, name)
	return name
}

func (s *script) tidy() {
	ch := s.channel()
	for _, q := range s.queues {
		_, err := ch.QueueDelete(q, false, false, false)
		s.must(err)
	}
}

// pair declares a queue whose rejects wait for ttl, in milliseconds, and return, with the arguments in addition.
func (s *script) pair(name string, ttl int32, args amqp.Table) (queue, wait string) {
	queue, wait = name, name+".wait"
	main := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
	waiting := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": ttl}
	maps.Copy(main, args)
	maps.Copy(waiting, args)
	return s.queue(name, main), s.queue(name+".wait", waiting)
}

// put publishes persistent messages with these ids and waits until the broker has them.
func (s *script) put(queue string, msg amqp.Publishing, ids ...string) {
	ch := s.channel()
	defer func() { _ = ch.Close() }()
	s.must(ch.Confirm(false))
	for _, id := range ids {
		msg.MessageId, msg.Body, msg.DeliveryMode = id, []byte("body of "+id), amqp.Persistent
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, msg)
		s.must(err)
		if !c.Wait() {
			s.t.Fatalf("publish %s: not confirmed", id)
		}
	}
}

// get waits for the next message, and writes it down.
func (s *script) get(ch *amqp.Channel, queue string) amqp.Delivery {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		d, ok, err := ch.Get(queue, false)
		s.must(err)
		if ok {
			s.say("get %s: %s", queue, render(d))
			return d
		}
	}
	s.t.Fatalf("nothing came to %s; so far:\n%s", queue, s.out.String())
	return amqp.Delivery{}
}

// render is all of a delivery that a broker decides, but the time.
func render(d amqp.Delivery) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s tag=%d redelivered=%t exchange=%q key=%q", d.MessageId, d.DeliveryTag, d.Redelivered, d.Exchange, d.RoutingKey)
	if d.Expiration != "" {
		fmt.Fprintf(b, " expiration=%s", d.Expiration)
	}
	for _, k := range slices.Sorted(maps.Keys(d.Headers)) {
		if k != "x-death" {
			fmt.Fprintf(b, "\n    %s = %T %v", k, d.Headers[k], d.Headers[k])
		}
	}
	deaths, _ := d.Headers["x-death"].([]any)
	for i, e := range deaths {
		fmt.Fprintf(b, "\n    x-death[%d]", i)
		death, _ := e.(amqp.Table)
		for _, k := range slices.Sorted(maps.Keys(death)) {
			if k == "time" {
				fmt.Fprintf(b, " time=%T", death[k])
			} else {
				fmt.Fprintf(b, " %s=%#v", k, death[k])
			}
		}
	}
	return b.String()
}
