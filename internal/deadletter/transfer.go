package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Export writes what s selects to w, one per line, harmless for a terminal, and leaves it where it is.
func (q *Queue) Export(ctx context.Context, w io.Writer, s Selection, report Report) (Progress, error) {
	buffered := bufio.NewWriterSize(w, 64<<10)
	p, err := q.Browse(ctx, s.Filter, Scan{Limit: s.Limit}, report, func(m *Message) error {
		if m.Unread != nil {
			return fmt.Errorf("message %d: %w", m.Position, m.Unread)
		}
		if err := m.write(buffered); err != nil {
			return fmt.Errorf("write message %d: %w", m.Position, err)
		}
		return nil
	})
	if ferr := buffered.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("write the export: %w", ferr)
	}
	return p, err
}

// maxLine bounds one line of an import, in bytes: a body of 128 MiB, which no broker takes, is less.
const maxLine = 192 << 20

// LineError is why an import ended before its end, and the first line that is not parked for certain.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap gives the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Import parks every message that Export has written to r, in order, after skipping so many lines. It stops at the
// first line that makes no sense (ErrInvalid) or cannot be parked, with a LineError: all before that line are parked.
// None behind it is, unless the connection broke: then it is unknown.
func (q *Queue) Import(ctx context.Context, r io.Reader, skip int, report Report) (Progress, error) {
	if _, err := q.Depth(ctx); err != nil {
		return Progress{}, err // before the first line is read: the queue may be missing
	}
	s, err := q.sender(ctx)
	if err != nil {
		return Progress{}, err
	}
	defer s.Close()
	i := importer{q: q, sender: s, skip: skip, pipeline: newPipeline(0)}
	stopReports := i.reporting(report)
	err = i.inOrder(func() error {
		return eachLine(r, func(n int, line []byte) error { return i.line(ctx, n, line) })
	})
	stopReports()
	return i.progress(), err
}

type importer struct {
	pipeline
	q      *Queue
	sender *sender
	skip   int
}

func (i *importer) line(ctx context.Context, n int, line []byte) error {
	select {
	case <-i.failed.Done():
		return ErrStopped // its cause says more
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	i.add(func(p *Progress) { p.Scanned = n })
	line = bytes.TrimSpace(line)
	if n <= i.skip || len(line) == 0 {
		return nil
	}
	memory := i.q.o.Broker.Memory
	// With the line there are its body as text and as bytes, of which the bytes stay until the confirm.
	taken := min(costOfLine+3*int64(len(line)), memory.Limit())
	if !memory.Wait(taken, ctx.Done()) {
		return context.Cause(ctx)
	}
	end, left, err := i.publish(line)
	if err != nil {
		memory.Give(taken)
		return err
	}
	left = min(left, taken)
	memory.Give(taken - left)
	i.todo <- func() {
		defer memory.Give(left)
		i.confirm(n, end)
	}
	return nil
}

// costOfLine is what a line takes beside its bytes.
const costOfLine = 4 << 10

// publish sends the message of a line, which holds left bytes of memory until end has returned.
func (i *importer) publish(line []byte) (end func() error, left int64, err error) {
	d, err := readLine(line)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	pub, fits := i.q.plan().RestorePublication(&d)
	if !fits {
		return nil, 0, fmt.Errorf("%w: its headers do not fit a frame", ErrInvalid)
	}
	i.add(func(p *Progress) { p.Matched++ })
	switch end, err = i.sender.send(pub); {
	case err == nil:
		return end, costOfLine + int64(len(line)), nil
	case onlyThisMessage(err):
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil, 0, fmt.Errorf("%w: %w", ErrStopped, err)
}

// confirm waits for the confirm of a line.
func (i *importer) confirm(n int, end func() error) {
	if err := end(); err != nil {
		i.fail(&LineError{n, fmt.Errorf("%w: this message and all after it may or may not be parked: %w", ErrStopped, err)})
		return
	}
	i.add(func(p *Progress) { p.Done++ })
}

// eachLine calls do with every line and its number, from 1. Its errors are LineErrors.
func eachLine(r io.Reader, do func(n int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		if err := do(n, lines.Bytes()); err != nil {
			return &LineError{n, err}
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("%w: it is longer than %d MiB", ErrInvalid, maxLine>>20)
	}
	if err != nil {
		return &LineError{n, err}
	}
	return nil
}
