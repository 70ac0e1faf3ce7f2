//go:build nightly

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// programs is the directory of the sidecar and of what buildTools builds: once for all tests.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sidecar-bench-test-")
	if err == nil {
		err = errors.Join(buildTools(context.Background(), dir), buildSidecar(context.Background(), filepath.Join(dir, "sidecar")))
	}
	if err != nil {
		panic(err)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// newTestBench is a benchmark in a virtual host of its own, without a database.
func newTestBench(t *testing.T) *bench {
	t.Helper()
	o := must.Get(parse([]string{"-sidecar", filepath.Join(programs, "sidecar"), "-only", "publish"}, io.Discard))(t)
	o.tools, o.amqpURL = programs, brokertest.URL(t)
	r := must.Get(newRig(t.Context(), o))(t)
	t.Cleanup(r.close)
	r.filled, r.settled, r.rest = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	b := newBench(o, r)
	must.Do(t, r.declare(b.sidecar))
	return b
}

// TestBenchNotices that a ledger does not balance when it should not, from the queue to the error: of 50 messages one is
// lost, one is published twice, one is parked, and one came from nowhere.
func TestBenchNotices(t *testing.T) {
	t.Parallel()
	b := newTestBench(t)
	b.silence = time.Second // for what never comes
	l := load{Messages: 50, Body: 100, Concurrency: 5}
	must.Do(t, b.fill(l))
	_, _, err := b.ch.Get(mainQueue, true)
	must.Do(t, errors.Join(err, b.publish(l, 3), b.publish(l, 51),
		b.ch.PublishWithContext(t.Context(), "", deadQueue, true, false, l.message(3))))
	_, err = b.drainFilled(b.sidecar, l)
	for _, says := range []string{
		"sidecar (50 messages, C=5)", "1 of 50 messages never reached the app", "1 duplicates",
		"1 requests that no message was published for", "1 messages left in the dlq",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// publish adds the i-th message of a load to the queue, confirmed.
func (b *bench) publish(l load, i int) error {
	c, err := b.ch.PublishWithDeferredConfirm("", mainQueue, true, false, l.message(i))
	if err != nil {
		return err
	}
	if ok, err := c.WaitContext(b.ctx); err != nil || !ok {
		return errors.Join(errors.New("not confirmed"), err)
	}
	return nil
}
