package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sidecar/internal/deadletter"
)

func dlqExport(c *call) execution {
	c.takesUsual()
	c.takesConditions()
	c.takesFile()
	var s deadletter.Selection
	c.count(&s.Limit, "limit", "write at most `N` messages; 0 = all that match (default 0)")
	force := c.flags.Bool("force", false, "replace the file if it exists")
	return func(ctx context.Context) error {
		name := "-"
		if len(c.words) > 0 {
			name = c.words[0]
		}
		switch {
		case name == "":
			return c.misuse("the file has no name")
		case name == "-" && c.json:
			return c.misuse("--json needs a file: standard output carries the messages")
		}
		q, err := c.openOne()
		if err != nil {
			return err
		}
		s.Filter = c.filter
		a := &action{name: "export", done: "exported", limit: s.Limit}
		if name == "-" {
			a.pipe, a.rest = true, "which is not all: run the same command again"
			return c.act(ctx, q, a, func(report deadletter.Report) (deadletter.Progress, error) {
				return q.Export(ctx, raw(c.stdout), s, report)
			})
		}
		if err := vacant(name, *force); err != nil {
			return c.failed("%v", err)
		}
		a.rest = "no file was written: run the same command again"
		return c.act(ctx, q, a, func(report deadletter.Report) (p deadletter.Progress, err error) {
			err = writeFile(name, *force, func(w io.Writer) error {
				p, err = q.Export(ctx, w, s, report)
				return err
			})
			return p, err
		})
	}
}

func vacant(name string, force bool) error {
	there, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !there.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; - is standard output", name)
	case !force:
		return fmt.Errorf("%s exists: choose another name, or --force to replace it", name)
	}
	return nil
}

// writeFile writes a file that only its owner can read, and that has its name only once the disk has all of it: people
// discard messages after an export.
func writeFile(name string, force bool, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.part") // with mode 0600
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", name, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is not there once it has its name
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := vacant(name, force); err != nil { // it may have come meanwhile
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(name)) // #nosec G304 -- the directory of the file that was asked for
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func dlqImport(c *call) execution {
	c.takesUsual()
	c.takesFile()
	skip := 0
	c.takesActor()
	c.count(&skip, "skip", "leave out `N` lines, from the beginning (default 0)")
	return func(ctx context.Context) error {
		from, err := c.source(ctx)
		if err != nil {
			return err
		}
		defer from.Close() //nolint:errcheck // it was only read
		q, err := c.openOne()
		if err != nil {
			return err
		}
		a := &action{name: "import", done: "imported"}
		return c.act(ctx, q, a, func(report deadletter.Report) (deadletter.Progress, error) {
			p, err := q.Import(ctx, from, skip, report)
			next := skip
			if at, ok := errors.AsType[*deadletter.LineError](err); ok {
				next = max(skip, at.Line-1)                // all before it are parked
				if errors.Is(err, deadletter.ErrInvalid) { // the line, not the command line
					err = fmt.Errorf("line %d: %w", at.Line, plainly(at.Err))
				}
			}
			a.rest = fmt.Sprintf("go on with --skip %d", next)
			return p, err
		})
	}
}

func (c *call) source(ctx context.Context) (io.ReadCloser, error) {
	if len(c.words) > 0 && c.words[0] != "-" {
		f, err := os.Open(c.words[0]) // #nosec G304 -- it was asked for
		if err != nil {
			return nil, c.failed("%v", err)
		}
		return f, nil
	}
	if _, typed := terminalWidth(c.stdin); typed {
		return nil, c.misuse("give a file, or send one to standard input")
	}
	return interruptible(ctx, c.stdin), nil
}

// interruptible is r until ctx ends: a read of a pipe without data, or of a terminal, would not end otherwise.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	return out
}
