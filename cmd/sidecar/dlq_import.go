package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sidecar/internal/deadletter"
)

func dlqImport(ctx context.Context, c *dlqCall) error {
	skip := 0
	c.count(&skip, "skip", "leave out `N` lines, from the beginning (default 0)")
	if err := c.parse(1); err != nil {
		return err
	}
	from, done, err := c.source(ctx)
	if err != nil {
		return err
	}
	defer done()
	q, err := c.open()
	if err != nil {
		return err
	}
	m := c.meter("imported", 0)
	p, err := q.Import(ctx, from, skip, m.report)
	m.stop()
	next := skip
	if at, ok := errors.AsType[*deadletter.LineError](err); ok {
		next = max(skip, at.Line-1)                // all before it are parked
		if errors.Is(err, deadletter.ErrInvalid) { // the line, not the command line
			err = fmt.Errorf("line %d: %s", at.Line, strings.TrimPrefix(at.Err.Error(), deadletter.ErrInvalid.Error()+": "))
		}
	}
	return c.report(ctx, q, action{"import", "imported", fmt.Sprintf("go on with --skip %d", next)}, false, &p, err)
}

// source is what is imported. done closes it.
func (c *dlqCall) source(ctx context.Context) (from io.Reader, done func(), err error) {
	if len(c.words) > 0 && c.words[0] != "-" {
		f, err := os.Open(c.words[0]) // #nosec G304 -- it was asked for
		if err != nil {
			return nil, nil, c.failed(err, "%v", err)
		}
		return f, func() { _ = f.Close() }, nil
	}
	if _, typed := terminalWidth(c.stdin); typed {
		return nil, nil, c.misuse("give a file, or send one to standard input")
	}
	return interruptible(ctx, c.stdin), func() {}, nil
}

// interruptible is r until ctx ends: a read of a pipe into which nobody writes ends with nothing else.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	return out
}
