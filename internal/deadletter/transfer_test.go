package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestExportPurgeImport: what returns is the same to the byte and to the type, in the same order, with the same
// Refs.
func TestExportPurgeImport(t *testing.T) {
	t.Parallel()
	for name, change := range presets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			all := everything()
			delete(all, "far")      // the broker's own reader wants a date
			delete(all, "\xff\xfe") // and UTF-8
			delete(all, "nan")      // which equals nothing, not even itself
			delete(all, "inf")
			odd := r.parked("odd", all)
			odd.Body = []byte{0, 1, 0xff, '\n', '"'}
			odd.ContentType, odd.ContentEncoding, odd.Priority, odd.CorrelationId, odd.ReplyTo = "", "gzip", 9, "c\"<", "answers"
			odd.Timestamp, odd.Type, odd.AppId, odd.Expiration = time.Unix(1700000000, 0), "typé", "app", "3600000"
			bare := amqp.Publishing{Body: nil}
			list := append(r.numbered(15), odd, r.parked("", nil), bare, r.parked("duplicate", nil), r.parked("duplicate", nil))
			ch := brokertest.Channel(t, r.url)
			for _, m := range list {
				brokertest.Publish(t, ch, r.plan.Park.Exchange, r.plan.Park.Key, m)
			}
			brokertest.WaitReady(t, r.url, r.name, len(list))
			before := r.peek(len(list))
			refs, _ := r.browse(Filter{}, Scan{})

			var file bytes.Buffer
			p, err := r.Export(t.Context(), &file, Selection{}, nil)
			if err != nil || p.Done != len(list) || bytes.Count(file.Bytes(), []byte("\n")) != len(list) {
				t.Fatalf("%+v %v", p, err)
			}
			if p, err := r.Discard(t.Context(), Discard{}, nil); err != nil || p.Done+p.Skipped != len(list) {
				t.Fatalf("%+v %v", p, err)
			}
			_ = r.drain(r.name)
			if p, err := r.Import(t.Context(), &file, 0, nil); err != nil || p.Done != len(list) {
				t.Fatalf("%+v %v", p, err)
			}
			brokertest.WaitReady(t, r.url, r.name, len(list))
			again, _ := r.browse(Filter{}, Scan{})
			if !reflect.DeepEqual(refs, again) {
				t.Errorf("%v\n%v", refs, again)
			}
			after := r.peek(len(list))
			for i := range before {
				if !reflect.DeepEqual(before[i], after[i]) {
					t.Errorf("message %d was\n%#v, is\n%#v", i, before[i], after[i])
				}
			}
		})
	}
}

// peek reads n messages with a plain client and leaves them as they are. What the queue itself counts is left out.
func (r *rig) peek(n int) (list []amqp.Delivery) {
	r.t.Helper()
	ch := brokertest.Channel(r.t, r.url)
	come := must.Get(ch.Consume(r.name, "", false, false, false, false, nil))(r.t)
	for range n {
		d := <-come
		delete(d.Headers, "x-delivery-count")
		delete(d.Headers, "x-acquired-count")
		if len(d.Headers) == 0 {
			d.Headers = nil // absent or empty: brokers differ in what they make of it
		}
		d.Acknowledger, d.ConsumerTag, d.DeliveryTag, d.Redelivered = nil, "", 0, false
		list = append(list, d)
	}
	_ = ch.Close()
	brokertest.WaitReady(r.t, r.url, r.name, n)
	return list
}

func TestExportASelection(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(append(r.numbered(5), r.parked("odd", amqp.Table{"x-final-status-code": int32(409)}))...)
	var file bytes.Buffer
	p, err := r.Export(t.Context(), &file, Selection{Filter: filter(t, "status", "409")}, nil)
	if err != nil || p.Done != 1 || p.Scanned != 6 || p.Total != 6 || !strings.Contains(file.String(), `"message_id":"odd"`) {
		t.Errorf("%+v %v %s", p, err, &file)
	}
	if p, err := r.Export(t.Context(), brokenWriter{}, Selection{}, nil); !errors.Is(err, errBroken) {
		t.Errorf("%+v %v", p, err)
	}
	brokertest.WaitReady(t, r.url, r.name, 6)
}

var errBroken = errors.New("disk full")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// TestImportStops at the first line that cannot be parked, and names it; with as many lines skipped it goes on.
func TestImportStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	line := func(id string) string { return written(t, amqp.Delivery{MessageId: id, Body: []byte(id)}) }
	file := line("a") + "\n" + line("b") + "nonsense\n" + line("c")
	p, err := r.Import(t.Context(), strings.NewReader(file), 0, nil)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "line 4") || p.Done != 2 {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := r.Import(t.Context(), strings.NewReader(file), 4, nil); err != nil || p.Done != 1 {
		t.Errorf("%+v %v", p, err)
	}
	if got := fmt.Sprint(ids(r.drain(r.name))); got != "[a b c]" {
		t.Errorf("%s", got)
	}
	for want, text := range map[string]string{
		"its headers do not fit a frame":  written(t, amqp.Delivery{Headers: amqp.Table{"big": strings.Repeat("x", 131_050)}}),
		"too large for a frame":           written(t, amqp.Delivery{Headers: amqp.Table{"big": strings.Repeat("x", 200_000)}}),
		"message_id has 300 bytes":        written(t, amqp.Delivery{MessageId: strings.Repeat("x", 300)}),
		"expiration must be milliseconds": written(t, amqp.Delivery{Expiration: "abc"}),
		"the body is missing":             `{"routing_key":"k"}`,
		"colour":                          `{"routing_key":"k","body":"","colour":"red"}`,
		"priority":                        `{"routing_key":"k","body":"","priority":256}`,
		"illegal base64":                  `{"routing_key":"k","body_base64":"!"}`,
		`header "a"`:                      `{"routing_key":"k","body":"","headers":{"a":300},"header_types":{"a":"int8"}}`,
	} {
		_, err := r.Import(t.Context(), strings.NewReader("\n"+text), 0, nil)
		if !errors.Is(err, ErrInvalid) || errors.Is(err, broker.ErrDisconnected) || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := r.Import(t.Context(), brokenReader{}, 0, nil); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	endless := readerFunc(func(b []byte) (int, error) { cancel(); return copy(b, line("d")), nil })
	if _, err := r.Import(ctx, endless, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// written is the line of a message in an export.
func written(t testing.TB, d amqp.Delivery) string {
	t.Helper()
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	must.Do(t, (&Message{Properties: d}).write(w))
	must.Do(t, w.Flush())
	return b.String()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
