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
