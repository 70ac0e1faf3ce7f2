// Command deadletter measures the cost of reading a dead-letter queue and of moving its messages: the time and the
// largest memory of each command. It needs AMQP_URL (scripts/broker.sh run 0 …); make bench-deadletter runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

type options struct {
	sidecars   []binary // the one to measure, and further ones to compare with
	kind       string
	messages   []int
	runs, body int
}

// binary is one sidecar.
type binary struct{ name, path string }

func main() {
	if err := run(os.Args[1:], os.Getenv("AMQP_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, url string, out io.Writer) error {
	o := options{messages: []int{}, sidecars: []binary{{name: "sidecar"}}}
	f := flag.NewFlagSet("deadletter", flag.ContinueOnError)
	f.StringVar(&o.sidecars[0].path, "sidecar", "bin/sidecar", "the binary to measure")
	f.Func("against", "NAME=PATH of another sidecar to run interleaved with it; repeatable", func(v string) error {
		name, path, ok := strings.Cut(v, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want NAME=PATH")
		}
		o.sidecars = append(o.sidecars, binary{name, path})
		return nil
	})
	f.StringVar(&o.kind, "queue-type", "classic,quorum", "types of queues, separated by commas")
	f.IntVar(&o.runs, "runs", 3, "runs of each command")
	f.IntVar(&o.body, "body", 1024, "bytes of a body")
	sizes := f.String("n", "20000", "messages in the queue, several separated by commas")
	if err := f.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		n := 0
		if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
			return fmt.Errorf("-n %q: want positive numbers", *sizes)
		}
		o.messages = append(o.messages, n)
	}
	if url == "" {
		return errors.New("AMQP_URL is unset: run it below scripts/broker.sh run 0 …")
	}
	fmt.Fprintf(out, "| queue | messages of %d bytes | command | binary | seconds | messages per second | CPU s "+
		"| peak RSS MiB |\n|---|---|---|---|---|---|---|---|\n", o.body)
	for kind := range strings.SplitSeq(o.kind, ",") {
		for _, n := range o.messages {
			if err := measure(&o, url, kind, n, out); err != nil {
				return fmt.Errorf("%s, %d messages: %w", kind, n, err)
			}
		}
	}
	return nil
}

// commands are what is measured, in this order: the last one empties the queue.
var commands = [][]string{
	{"list"}, {"groups"}, {"list", "--limit", "1", "--error", "occurs nowhere"}, {"export", "-"}, {"redrive", "--all"},
}

// measure runs every command of every binary on a queue of n messages, the binaries in turn, and prints the median of
// each.
func measure(o *options, url, kind string, n int, out io.Writer) error {
	b, err := newBroker(url, kind)
	if err != nil {
		return err
	}
	defer b.close()
	results := map[string][]result{}
	for round := range o.runs {
		for i := range o.sidecars {
			s := o.sidecars[(round+i)%len(o.sidecars)] // no binary is always the first
			if err := b.fill(n, o.body); err != nil {
				return err
			}
			for _, args := range commands {
				r, err := b.command(s.path, args)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				key := s.name + " " + strings.Join(args, " ")
				results[key] = append(results[key], r)
			}
			if err := b.moved(n); err != nil {
				return err
			}
		}
	}
	for _, args := range commands {
		for _, s := range o.sidecars {
			command := strings.Join(args, " ")
			report(out, fmt.Sprintf("| %s | %d | `dlq %s` | %s", kind, n, command, s.name), results[s.name+" "+command],
				n, command != "list") // that reads twenty messages
		}
	}
	return nil
}

// report prints the rest of one row.
func report(out io.Writer, row string, list []result, n int, all bool) {
	slices.SortFunc(list, func(a, b result) int { return int(a.cpu - b.cpu) })
	cpu := list[len(list)/2].cpu
	slices.SortFunc(list, func(a, b result) int { return int(a.took - b.took) })
	m := list[len(list)/2]
	rate := "–"
	if all {
		rate = fmt.Sprintf("%.0f", float64(n)/m.took.Seconds())
	}
	fmt.Fprintf(out, "%s | %.2f (%.2f–%.2f) | %s | %.2f | %.1f |\n", row, m.took.Seconds(), list[0].took.Seconds(),
		list[len(list)-1].took.Seconds(), rate, cpu.Seconds(), float64(m.memory)/1024)
}

type result struct {
	took, cpu time.Duration // cpu: user and system
	memory    int64         // KiB at most
}

// broker is a topology of its own.
type broker struct {
	url, kind, service string
	conn               *amqp.Connection
}

func newBroker(url, kind string) (*broker, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	b := &broker{url: url, kind: kind, service: fmt.Sprintf("bench%d-dlq", time.Now().UnixNano()), conn: conn}
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	args := amqp.Table{}
	if kind == "quorum" {
		args = amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(1<<31 - 1)}
	}
	for _, q := range []string{b.queue(), b.dlq()} {
		if _, err := ch.QueueDeclare(q, true, false, false, false, args); err != nil {
			return nil, fmt.Errorf("declare queue %q: %w", q, err)
		}
	}
	return b, ch.Close()
}

func (b *broker) prefix() string { return strings.TrimSuffix(b.service, "-dlq") }
func (b *broker) queue() string  { return b.prefix() + ".queue." + b.service }
func (b *broker) dlq() string    { return b.prefix() + ".dlq." + b.service }

func (b *broker) close() {
	if ch, err := b.conn.Channel(); err == nil {
		_, _ = ch.QueueDelete(b.queue(), false, false, false)
		_, _ = ch.QueueDelete(b.dlq(), false, false, false)
	}
	_ = b.conn.Close()
}

// fill parks n messages and empties the service's queue.
func (b *broker) fill(n, body int) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // nothing is left to do about it
	if _, err := ch.QueuePurge(b.queue(), false); err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirms := make(chan *amqp.DeferredConfirmation, 2000)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for c := range confirms {
			if !c.Wait() {
				failed <- errors.New("a message was not confirmed")
			}
		}
	}()
	payload := make([]byte, body)
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm("", b.dlq(), true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprintf("message-%08d", i), Body: payload,
			Headers: amqp.Table{
				"x-original-queue": b.queue(), "x-original-exchange": "orders", "x-original-routing-key": "order.created",
				//nolint:gosec // small
				"x-final-reason": "max_retries", "x-final-status-code": int32(500 + i%7), "x-final-retry-count": int32(10),
				"x-final-at": "2026-11-20T10:00:00.000Z", "x-final-detail": fmt.Sprintf("order %d could not be booked", i),
			},
		})
		if err != nil {
			return err
		}
		confirms <- c
	}
	close(confirms)
	return <-failed
}

// command runs the sidecar and checks what it took.
func (b *broker) command(sidecar string, args []string) (result, error) {
	// #nosec G204 -- what the flags say
	cmd := exec.CommandContext(context.Background(), sidecar, append([]string{"dlq"}, args...)...)
	cmd.Env = []string{"SIDECAR_SERVICE=" + b.service, "SIDECAR_AMQP_URL=" + b.url, "SIDECAR_QUEUE_TYPE=" + b.kind}
	var problems strings.Builder
	cmd.Stdout, cmd.Stderr = nil, &problems
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, problems.String())
	}
	r := result{took: time.Since(begun), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.memory = u.Maxrss
	}
	return r, nil
}

// moved makes sure that the figures are of what they say: a redrive that moved nothing would be very fast.
func (b *broker) moved(n int) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // nothing is left to do about it
	for deadline := time.Now().Add(time.Minute); ; {
		q, err := ch.QueueDeclarePassive(b.queue(), true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages == n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages were moved", q.Messages, n)
		}
	}
}
