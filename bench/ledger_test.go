package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

func TestLedgerBalances(t *testing.T) {
	t.Parallel()
	good := func() *run {
		return &run{
			Candidate: "x", Load: load{Messages: 10}, Stats: appStats{Received: 10, Distinct: 10},
			Left: map[string]int{"queue": 0, "retry-queue": 0, "dlq": 0},
		}
	}
	if err := good().balance(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*run)
		says   string
	}{
		"lost":             {func(r *run) { r.Stats.Received, r.Stats.Distinct = 9, 9 }, "1 of 10 messages never reached the app"},
		"twice":            {func(r *run) { r.Stats.Received = 11 }, "1 duplicates"},
		"one for another":  {func(r *run) { r.Stats.Distinct = 9 }, "1 duplicates"},
		"unknown":          {func(r *run) { r.Stats.Received, r.Stats.Unknown = 11, 1 }, "1 requests that no message"},
		"left":             {func(r *run) { r.Left["queue"] = 3 }, "3 messages left in the queue"},
		"retried":          {func(r *run) { r.Left["retry-queue"] = 2 }, "2 messages left in the retry-queue"},
		"parked":           {func(r *run) { r.Left["dlq"] = 1 }, "1 messages left in the dlq"},
		"nothing received": {func(r *run) { r.Stats = appStats{} }, "10 of 10 messages"},
		"batches": {func(r *run) {
			r.Load.Item, r.Stats = "x", appStats{Received: 11, Distinct: 10}
		}, "11 messages reached the app, not 10"},
	} {
		r := good()
		c.change(r)
		if err := r.balance(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

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
	var table bytes.Buffer
	must.Do(t, b.write(b.o, &table))
	for _, name := range []string{"baseline", "sidecar", "other"} {
		if !strings.Contains(table.String(), "| "+name+" |") {
			t.Errorf("the table does not show %s:\n%s", name, table.String())
		}
	}
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
	plot := must.Get(os.ReadFile(filepath.Join(b.o.out, "plot.svg")))(t)
	wellFormed(t, plot)
}

// wellFormed fails the test when plot is no XML, or holds a number that is none.
func wellFormed(t *testing.T, plot []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(plot))
	elements := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
	if elements < 2 || bytes.Contains(plot, []byte("NaN")) || bytes.Contains(plot, []byte("Inf")) {
		t.Errorf("a plot of %d elements:\n%s", elements, plot)
	}
}

func TestPlotOfRunsTooShortForAnyCPUTime(t *testing.T) {
	t.Parallel()
	r := &result{Drained: []*run{{Candidate: `<&"x`, Load: load{Messages: 1}}}, Growth: []curve{*points("body", []int{0, 1024}, 0, 0)}}
	wellFormed(t, r.plot())
	wellFormed(t, (&result{Growth: []curve{*points("body", []int{1}, 3)}}).plot())
}

// TestBenchNotices that a ledger does not balance when it should not, from the queue to the error.
func TestBenchNotices(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, consume)
	b.silence = time.Second // for what never comes
	l := load{Messages: 50, Body: 100, Concurrency: 5}
	for name, c := range map[string]struct {
		spoil func() error
		says  []string
	}{
		"a message that was lost": {
			func() error { _, _, err := b.ch.Get(mainQueue, true); return err },
			[]string{"1 of 50 messages never reached the app"},
		},
		"a lost message and a strange one": {
			func() error { _, _, err := b.ch.Get(mainQueue, true); return errors.Join(err, b.publish(l, 51)) },
			[]string{"1 of 50 messages never reached the app", "1 requests that no message was published for"},
		},
		"one that was lost, one published twice and one parked": {
			func() error {
				_, _, err := b.ch.Get(mainQueue, true)
				return errors.Join(err, b.publish(l, 3), b.ch.PublishWithContext(t.Context(), "", deadQueue, true, false, l.message(3)))
			},
			[]string{"1 of 50 messages never reached the app", "1 duplicates", "1 messages left in the dlq"},
		},
	} {
		must.Do(t, errors.Join(b.fill(l), c.spoil()))
		_, err := b.drainFilled(b.sidecar, l)
		for _, says := range c.says {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "sidecar (50 messages, C=5)") {
				t.Errorf("%s: %v, want %q", name, err, says)
			}
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

func TestBenchWithoutServers(t *testing.T) {
	t.Parallel()
	if _, err := openDatabase(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "POSTGRES_DSN") {
		t.Errorf("no database: %v", err)
	}
	if _, err := newRig(t.Context(), &options{}); err == nil || !strings.Contains(err.Error(), "AMQP_URL") {
		t.Errorf("no broker: %v", err)
	}
}

// TestWaitEndsWithItsCandidate: nothing waits for the messages of a process that is gone.
func TestWaitEndsWithItsCandidate(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	stuck := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "0 of 1", http.StatusGatewayTimeout)
	})}
	go func() { _ = stuck.Serve(l) }()
	t.Cleanup(func() { _ = stuck.Close() })
	r := &rig{ctx: context.Background(), dir: t.TempDir(), control: "http://" + l.Addr().String()}
	p := must.Get(r.start("gone", "/bin/false", false))(t)
	<-p.ended
	if err := r.waitReceived(p, 1); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("waited for a process that is gone: %v", err)
	}
	if err := p.stop(); err == nil {
		t.Error("it ended well")
	}
}
