package test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
)

// The memory limits that the chart computes, in MiB.
const (
	plainLimit   = 128
	publishLimit = 213
	outboxLimit  = 171
)

var heavy sync.Mutex

// alone lets one test at a time move hundreds of megabytes.
func alone(t *testing.T) {
	t.Helper()
	heavy.Lock()
	t.Cleanup(heavy.Unlock)
}

// confined is a sidecar in a memory cgroup, as in its container. Where no cgroup can be made its resident set alone is
// judged.
type confined struct {
	*sidecar

	limit int    // MiB
	procs string // the file of the cgroup that takes a process; /dev/null without a cgroup
}

// confined starts the shipped binary with such a limit in MiB and waits until it is ready.
func (sc *scene) confined(limit int) *confined {
	sc.t.Helper()
	t, ok := sc.t.(*testing.T)
	if !ok {
		sc.t.Fatal("not for benchmarks")
	}
	env := maps.Clone(sc.env)
	procs := memoryCgroup(t, limit)
	if procs == "" {
		env["GOMEMLIMIT"], procs = fmt.Sprintf("%dMiB", limit), os.DevNull
	}
	s := launchBinary(t, "/bin/sh", env, "-c", `echo $$ > "$0" && exec "$1"`, procs, shipped(t))
	return &confined{s.listening().awaitReady(), limit, procs}
}

// memoryCgroup makes a cgroup of version 1 or 2 with a limit in MiB. It returns the file that takes a process, "" where
// none can be made.
func memoryCgroup(t *testing.T, limit int) string {
	t.Helper()
	for _, limitFile := range []string{"/sys/fs/cgroup/memory/%s/memory.limit_in_bytes", "/sys/fs/cgroup/%s/memory.max"} {
		file := fmt.Sprintf(limitFile, "sidecar-test-"+token())
		dir := filepath.Dir(file)
		if os.Mkdir(dir, 0o755) != nil { //nolint:gosec // as the kernel makes them
			continue
		}
		t.Cleanup(func() { // after the process
			eventually(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil })
		})
		f, err := os.OpenFile(file, os.O_WRONLY, 0) // it is there already where this is a cgroup
		if err != nil {
			continue
		}
		defer func() { _ = f.Close() }()
		if _, err := fmt.Fprint(f, limit<<20); err == nil {
			return filepath.Join(dir, "cgroup.procs")
		}
	}
	t.Log("no cgroup can be made here: the resident set alone is judged")
	return ""
}

// alive fails the test unless the sidecar has lived within its limit all the time, and answers probes.
func (c *confined) alive() {
	c.t.Helper()
	if c.ended() {
		c.t.Fatalf("the sidecar ended: %v", c.cmd.ProcessState)
	}
	if status, _ := c.get(c.admin, "/livez"); status != http.StatusOK {
		c.t.Errorf("/livez: %d", status)
	}
	peak := peakRSS(c.t, c.cmd.Process.Pid)
	c.t.Logf("%d of %d MiB at the peak", peak>>10, c.limit)
	if peak > c.limit<<10 {
		c.t.Errorf("%d MiB at the peak, the limit is %d", peak>>10, c.limit)
	}
}

// within is alive with a peak of nine tenths of the limit, without the pages of the program. The peak of the cgroup is
// only logged: with bodies in files it is the whole limit, because the kernel keeps their pages until it needs memory.
func (c *confined) within() {
	c.t.Helper()
	c.alive()
	peak := (peakRSS(c.t, c.cmd.Process.Pid) - ofStatus(c.t, c.cmd.Process.Pid, "RssFile")) >> 10
	if c.t.Logf("%d MiB without files at the peak", peak); peak > c.limit*9/10 {
		c.t.Errorf("%d MiB without files at the peak, the limit is %d", peak, c.limit)
	}
	for _, name := range []string{"memory.peak", "memory.max_usage_in_bytes"} {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(c.procs), name)); err == nil {
			c.t.Logf("%s: %s", name, bytes.TrimSpace(text))
		}
	}
}

// peakAnonymous returns the most memory in MiB, without the pages of files, that the sidecar has while during runs.
func (c *confined) peakAnonymous(during func()) (mib int) {
	c.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		during()
	}()
	for {
		select {
		case <-ended:
			return mib
		case <-time.After(10 * time.Millisecond):
			mib = max(mib, ofStatus(c.t, c.cmd.Process.Pid, "RssAnon")>>10)
		}
	}
}

// hold opens connections that send text and then nothing. They are closed at the end of the test.
func hold(t *testing.T, addr, text string, n int) []net.Conn {
	t.Helper()
	all := make([]net.Conn, 0, n)
	for range n {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			continue // it may be full for a moment
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write([]byte(text)) // it may have been closed to make room
		all = append(all, c)
	}
	return all
}

// post is the head of a POST to a path with a body of that length.
func post(path string, length int, more string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n%s\r\n", path, length, more)
}

// manyLines is a header of about 15 KiB that does not end.
var manyLines = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Repeat("a:b\r\n", 3000)

// smallTables is a header array of n tables with one entry each.
func smallTables(n int) []any {
	a := make([]any, n)
	for i := range a {
		a[i] = amqp.Table{"": nil}
	}
	return a
}

// TestCostlyHeaders: a few small messages whose headers are large when they are decoded.
func TestCostlyHeaders(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50").seed()
	ids := numbered("costly", 24)
	for _, id := range ids {
		m := message(id)
		m.Headers, m.Body = amqp.Table{"a": smallTables(8000), "b": smallTables(8000)}, []byte("x")
		sc.sendMessage(m)
	}
	sc.send("innocent")
	s := sc.confined(plainLimit)
	s.awaitAcked(append(ids, "innocent")...)
	s.alive()
	sc.settledAll(s.sidecar, 0)
}

// largest is the largest body that the broker takes by default, and the budget that is smaller than it.
func largest(t *testing.T) (size int, memory string) {
	t.Helper()
	if strings.HasPrefix(brokertest.Version(t), "3.") {
		return 120 << 20, ""
	}
	return 15 << 20, "8MiB"
}

// TestAMessageLargerThanAllMemory: it is parked whole, and the one behind it is handled. Without a place for its body
// it is held, which the status says.
func TestAMessageLargerThanAllMemory(t *testing.T) {
	t.Parallel()
	size, memory := largest(t)
	for name, dir := range map[string]string{"parked": "/tmp", "held": "/proc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MEMORY", memory, "SPOOL_DIR", dir, "MAX_BODY", "1MiB").seed()
			alone(t)
			m := message("large")
			m.Body = bytes.Repeat([]byte("0123456789abcdef"), size>>4)
			sc.sendMessage(m)
			sc.send("innocent")
			s := sc.confined(plainLimit)
			s.awaitAcked("innocent")
			if name == "held" {
				eventually(t, "the status says so", func() bool {
					_, body := s.get(s.control, "/status")
					return strings.Contains(body, fmt.Sprintf("there is no memory for a message of %d bytes (SIDECAR_MEMORY)", size))
				})
				s.alive()
				s.stop()
				if n := sc.ready(sc.queue()); n != 1 {
					t.Errorf("%d messages are in the queue", n)
				}
				return
			}
			s.awaitOutcome("large", "park")
			copies := sc.ready(sc.dlq())
			if unknown := len(s.log.find(func(e entry) bool { return e.is("publish failed") })); copies < 1 || copies > 1+unknown {
				t.Errorf("it is parked %d times, and %d confirms did not come in time", copies, unknown)
			}
			for range copies {
				d := brokertest.Get(t, brokertest.URL(t), sc.dlq(), patience)
				if !bytes.Equal(d.Body, m.Body) || d.Headers["x-final-reason"] != "too_large" {
					t.Errorf("%d bytes are parked, with the reason %v", len(d.Body), d.Headers["x-final-reason"])
				}
			}
			s.alive()
			sc.settledAll(s.sidecar, 0)
		})
	}
}

// TestARowWithCostlyHeaders: 18 MB of headers that PostgreSQL stores in 726 KB. The row fails alone.
func TestARowWithCostlyHeaders(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(outboxTable)
	db.Exec(`INSERT INTO outbox (routing_key, body, headers)
		SELECT 'k', 'x', jsonb_build_object('h', jsonb_agg(jsonb_build_object('k', '', 'l', repeat('x', 20)))) FROM generate_series(1, 450000)`)
	id := db.Value(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'innocent') RETURNING message_id`)
	sc := newScene(t).with("OUTBOX_DSN", db.DSN).seed()
	alone(t)
	s := sc.confined(outboxLimit)
	sc.app.await(id, 1)
	eventually(t, "the row is marked", func() bool {
		return strings.Contains(db.Value(`SELECT COALESCE(max(last_error), '') FROM outbox WHERE attempts > 0`), "headers")
	})
	s.alive()
}
