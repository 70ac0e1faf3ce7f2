package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Export writes what s selects to w, one Record per line, and leaves it where it is.
func (q *Queue) Export(ctx context.Context, w io.Writer, s Selection, report Report) (Progress, error) {
	unlock, err := q.lock(ctx, true)
	if err != nil {
		return Progress{}, err
	}
	defer unlock()
	buffered := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	tally := newTally(report)
	sum, err := q.browse(ctx, s.Filter, Scan{Limit: s.Limit}, func(m *Message) error {
		if err := enc.Encode(m.Record()); err != nil {
			return fmt.Errorf("write message %d: %w", m.Position, err)
		}
		tally.add(func(p *Progress) { p.Scanned, p.Matched, p.Done = m.Position, p.Matched+1, p.Done+1 })
		return nil
	})
	if ferr := buffered.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("write the export: %w", ferr)
	}
	tally.add(func(p *Progress) { p.Total, p.Scanned = sum.Total, sum.Scanned })
	return tally.stop(), err
}

// maxLine bounds one line of an import, in bytes: a body of 128 MiB, which no broker takes, is less.
const maxLine = 192 << 20

// Import parks every Record that r holds, in their order, after skipping so many lines. It stops at the first line that
// makes no sense (ErrInvalid) or cannot be parked, and names it: all before it are parked, none behind it.
func (q *Queue) Import(ctx context.Context, r io.Reader, skip int, report Report) (Progress, error) {
	unlock, err := q.lock(ctx, false)
	if err != nil {
		return Progress{}, err
	}
	defer unlock()
	if d, err := q.Depth(ctx); err != nil {
		return Progress{Total: d.Ready}, err // before the first line is read: the queue may be missing
	}
	p, stop, err := q.publisher(ctx)
	if err != nil {
		return Progress{}, err
	}
	defer stop()
	tally := newTally(report)
	err = eachLine(r, func(n int, line []byte) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		tally.add(func(p *Progress) { p.Scanned = n })
		line = bytes.TrimSpace(line)
		if n <= skip || len(line) == 0 {
			return nil
		}
		record, err := readRecord(line)
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrInvalid, n, err)
		}
		d := record.delivery()
		pub, fits := q.o.Plan.RestorePublication(&d)
		if !fits {
			return fmt.Errorf("%w: line %d: its headers do not fit a frame", ErrInvalid, n)
		}
		if err := publish(p, pub); err != nil {
			if alone(err) {
				return fmt.Errorf("%w: line %d: %w", ErrInvalid, n, err)
			}
			return fmt.Errorf("%w: line %d: %w", ErrStopped, n, err)
		}
		tally.add(func(p *Progress) { p.Matched, p.Done = p.Matched+1, p.Done+1 })
		return nil
	})
	return tally.stop(), err
}

// eachLine calls do with every line and its number, from 1.
func eachLine(r io.Reader, do func(n int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		n++
		if err := do(n, lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%w: line %d is longer than %d MiB", ErrInvalid, n+1, maxLine>>20)
	} else if err != nil {
		return fmt.Errorf("read line %d: %w", n+1, err)
	}
	return nil
}
