package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"sidecar/internal/deadletter"
)

func dlqExport(ctx context.Context, c *dlqCall) error {
	c.takesConditions()
	c.count(&c.limit, "limit", "write at most `N` messages; 0 = all that match (default 0)")
	force := c.flags.Bool("force", false, "replace the file if it exists")
	if err := c.parse(1); err != nil {
		return err
	}
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
	q, err := c.open()
	if err != nil {
		return err
	}
	s := deadletter.Selection{Filter: c.filter, Limit: c.limit}
	if name == "-" {
		return c.exportToStdout(ctx, q, s)
	}
	f, err := newFile(name, *force)
	if err != nil {
		return c.failed(err, "%v", err)
	}
	m := c.meter("exported", s.Limit)
	p, err := q.Export(ctx, &escaping{w: f}, s, m.report)
	m.stop()
	if err == nil {
		err = f.finish()
	} else {
		f.abandon()
	}
	return c.report(ctx, q, action{"export", "exported", "no file was written: run the same command again"}, false, &p,
		err)
}

func (c *dlqCall) exportToStdout(ctx context.Context, q *deadletter.Queue, s deadletter.Selection) error {
	m := c.meter("exported", s.Limit)
	if _, shown := terminalWidth(c.stdout); shown {
		m.hide() // the messages themselves are on the screen
	}
	p, err := q.Export(ctx, &escaping{w: c.stdout}, s, m.report)
	m.stop()
	a := action{"export", "exported", "which is not all: run the same command again"}
	if failed := c.explain(ctx, q, err, fmt.Sprintf("%d %s, %s", p.Done, a.done, a.rest)); failed != nil {
		return failed
	}
	c.note("%s", outcome(a, false, &p))
	return c.missing(&p)
}

// escaping writes JSON so that it does no harm to a terminal. A character may come in two pieces.
type escaping struct {
	w    io.Writer
	half []byte
}

func (e *escaping) Write(p []byte) (int, error) {
	b := append(e.half, p...)
	end := len(b)
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= n
			}
			break
		}
	}
	if _, err := e.w.Write(escapeJSON(b[:end])); err != nil {
		return 0, err
	}
	e.half = slices.Clone(b[end:])
	return len(p), nil
}

// unfinished is a file that has its name only once it is complete.
type unfinished struct {
	*os.File
	name  string
	force bool
}

// newFile begins a file that only its owner can read. A file of that name is an error unless it may be replaced.
func newFile(name string, force bool) (*unfinished, error) {
	if err := vacant(name, force); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.part") // with mode 0600
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", name, err)
	}
	return &unfinished{f, name, force}, nil
}

// vacant reports why a file cannot have that name.
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

// finish gives the file its name once the disk has it: people discard messages after an export.
func (f *unfinished) finish() error {
	err := f.Sync()
	if err = errors.Join(err, f.Close()); err == nil {
		err = vacant(f.name, f.force) // it may have come meanwhile
	}
	if err == nil {
		err = os.Rename(f.Name(), f.name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(f.name))
}

func syncDir(name string) error {
	d, err := os.Open(name) // #nosec G304 -- the directory of the file that was asked for
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *unfinished) abandon() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

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

// interruptible is r until ctx ends: a read of a pipe without data would not end otherwise.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	return out
}
