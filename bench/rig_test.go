//go:build nightly

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
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

// newTestBench is a benchmark in a virtual host, and with a database, of its own.
func newTestBench(t *testing.T, half string) *bench {
	t.Helper()
	path, out := filepath.Join(programs, "sidecar"), t.TempDir()
	o, err := parse([]string{"-sidecar", path, "-against", "other=" + path, "-runs", "1", "-n", "500", "-out", out, "-only", half}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if half == retried {
		brokertest.Delaying(t)
	}
	o.tools, o.amqpURL = programs, brokertest.URL(t)
	if half == produce {
		o.dsn = postgrestest.New(t).DSN
	}
	r := must.Get(newRig(t.Context(), o))(t)
	t.Cleanup(r.close)
	r.filled, r.settled, r.rest = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	b := newBench(o, r)
	must.Do(t, r.declare(b.sidecar))
	return b
}

func TestBenchLedger(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, consume)
	l := load{Messages: 100, Body: 1024, Concurrency: 5}
	runs := must.Get(b.collected(l, b.candidates))(t)
	if names := candidatesOf(runs); len(runs) != 3 || len(names) != 3 {
		t.Fatalf("%d runs of %q: one of each was asked for, and the warm-up does not count", len(runs), names)
	}
	for _, r := range runs {
		if err := r.balance(); err != nil {
			t.Error(err)
		}
		if r.Stats.MaxInflight != 5 || r.Stats.Held != 5 || r.Rate <= 0 || r.Peak <= 0 || r.Stats.Connections < 5 {
			t.Errorf("%+v", r)
		}
	}
	b.result.Drained = runs
	headers := load{Messages: 50, Body: 10, Headers: 8, Concurrency: 5}
	withHeaders := must.Get(b.one(b.sidecar, headers))(t)
	c := curve{Name: "headers", Unit: "headers", Points: []point{{X: 8, Load: headers}}}
	c.finish([][]*run{{withHeaders}})
	b.result.Growth = []curve{c}
	if _, err := b.ceiling(load{Messages: 50, Body: 1024, Concurrency: 5, Sleep: time.Millisecond}); err != nil {
		t.Errorf("ceiling: %v", err)
	}
	checkFiles(t, b)
}

// checkFiles writes the result and reads it as others would.
func checkFiles(t *testing.T, b *bench) {
	t.Helper()
	shows(t, b, "| baseline |", "| sidecar |", "| other |")
	encoded := must.Get(os.ReadFile(filepath.Join(b.o.out, "result.json")))(t)
	var back result
	if err := json.Unmarshal(encoded, &back); err != nil || len(back.Drained) != 3 || len(back.Growth[0].Points[0].Runs) != 1 {
		t.Errorf("result.json: %v\n%s", err, encoded)
	}
	host := must.Get(os.Hostname())(t)
	for _, private := range []string{b.o.out, b.dir, `"` + host + `"`} {
		if bytes.Contains(encoded, []byte(private)) {
			t.Errorf("result.json shows %q", private)
		}
	}
	must.Get(os.ReadFile(filepath.Join(b.o.out, "plot.svg")))(t)
}

// TestBenchNotices that a ledger does not balance when it should not, from the queue to the error: of 50 messages one is
// lost, one is published twice, one is parked, and one came from nowhere.
func TestBenchNotices(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, consume)
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
