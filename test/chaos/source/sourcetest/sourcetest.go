// Package sourcetest runs a source of a chaos run inside a test.
package sourcetest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"sidecar/test/chaos/source"
)

// Source is one that runs.
type Source struct {
	t    testing.TB
	in   *io.PipeWriter
	done chan int
	over chan error
}

// Run starts a source; run is the Run of its package.
func Run(t testing.TB, run func(in io.Reader, out io.Writer) error) *Source {
	t.Helper()
	in, limits := io.Pipe()
	counts, out := io.Pipe()
	s := &Source{t: t, in: limits, done: make(chan int, 1000), over: make(chan error, 1)}
	go func() {
		s.over <- run(in, out)
		_ = in.Close()
		_ = out.Close()
	}()
	go func() {
		for c := bufio.NewScanner(counts); c.Scan(); {
			if n, err := strconv.Atoi(c.Text()); err == nil {
				select {
				case s.done <- n:
				default: // no client asks
				}
			}
		}
	}()
	return s
}

// Until lets the source make messages up to n, and waits until all have their results.
func (s *Source) Until(n int) {
	s.t.Helper()
	s.until(n, "")
}

// AtOnce is Until for messages that are to be sent at once.
func (s *Source) AtOnce(n int) {
	s.t.Helper()
	s.until(n, source.AtOnce)
}

func (s *Source) until(n int, what string) {
	s.t.Helper()
	_, _ = fmt.Fprintln(s.in, n, what)
	for late := time.After(time.Minute); ; {
		select {
		case done := <-s.done:
			if done >= n {
				return
			}
		case <-late:
			s.t.Fatalf("not all of %d messages had a result after a minute", n)
		}
	}
}

// Stop ends the source.
func (s *Source) Stop() {
	s.t.Helper()
	_ = s.in.Close()
	if err := <-s.over; err != nil {
		s.t.Error(err)
	}
}
