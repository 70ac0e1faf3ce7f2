//go:build unix

package crash

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/testkit/must"
)

// file is the journal that the first process of queue "q" uses.
func file(dir string) string { return filepath.Join(dir, fileName("q", 0)) }

// TestUnusableDirectory: a guard that was asked for and cannot work is a mistake to report.
func TestUnusableDirectory(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(plain, nil, 0o600))
	for dir, want := range map[string]error{"/nowhere": fs.ErrNotExist, plain: syscall.ENOTDIR, "/proc": fs.ErrNotExist} {
		if _, err := Open(Options{Dir: dir, Queue: "q", Limit: 1, Workers: 1}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", dir, err, want)
		}
	}
}

// TestWhatIsNotAJournalIsLeftAlone and does not keep the sidecar from having one.
func TestWhatIsNotAJournalIsLeftAlone(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "target")
	for name, plant := range map[string]func(path string) error{
		"text":      func(p string) error { return os.WriteFile(p, []byte("a user's notes\n"), 0o600) },
		"huge":      func(p string) error { return errors.Join(os.WriteFile(p, []byte("x"), 0o600), os.Truncate(p, 1<<33)) },
		"link":      func(p string) error { return errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, p)) },
		"hard link": func(p string) error { return errors.Join(os.WriteFile(p+".2", nil, 0o600), os.Link(p+".2", p)) },
		"pipe":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must.Do(t, plant(file(dir)))
			before := must.Get(os.Lstat(file(dir)))(t)
			p := begin(t, dir)
			if p.journal.f.Name() != filepath.Join(dir, fileName("q", 1)) {
				t.Errorf("uses %s", p.journal.f.Name())
			}
			after := must.Get(os.Lstat(file(dir)))(t)
			if after.Size() != before.Size() || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
				t.Errorf("changed: %v %v", before, after)
			}
		})
	}
	if b := must.Get(os.ReadFile(target))(t); len(b) > 0 {
		t.Errorf("the target of the link was written: %q", b)
	}
}

// TestDamagedJournals lose what is damaged, nothing else, and are used again.
func TestDamagedJournals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(b []byte) []byte
		want   int // crashes of the message in the second slot
	}{
		"as it was":        {func(b []byte) []byte { return b }, 1},
		"first slot":       {func(b []byte) []byte { b[unit+21]++; return b }, 1},
		"its own slot":     {func(b []byte) []byte { b[2*unit+21]++; return b }, 0},
		"cut in the slot":  {func(b []byte) []byte { return b[:2*unit+30] }, 0},
		"cut in the magic": {func(b []byte) []byte { return b[:3] }, -1},
		"zeros":            {func(b []byte) []byte { return make([]byte, len(b)) }, 0},
		"longer":           {func(b []byte) []byte { return append(b, make([]byte, (maxSlots+9)*unit)...) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			diedWith(t, dir, "a", "b")
			b := must.Get(os.ReadFile(file(dir)))(t)
			size := len(b)
			must.Do(t, os.WriteFile(file(dir), c.damage(b), 0o600))
			p := begin(t, dir)
			if c.want < 0 { // no journal of ours by its first bytes
				if p.journal.f.Name() == file(dir) {
					t.Error("used all the same")
				}
				return
			}
			wantCrashes(t, "crashes", p, redelivered("b"), c.want)
			if now := len(must.Get(os.ReadFile(file(dir)))(t)); now != size {
				t.Errorf("size %d, want %d", now, size)
			}
		})
	}
}

// TestReplicasShareADirectory: each has a journal of its own, and a dead one's is taken by who comes next.
func TestReplicasShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := begin(t, dir), begin(t, dir)
	if a.journal.f.Name() == b.journal.f.Name() {
		t.Fatal("one journal for two")
	}
	a.begin(t, 0, arrived("a"))
	b.begin(t, 0, arrived("b"))
	a.die(t)
	c := begin(t, dir)
	wantCrashes(t, "crashes of the dead one's message", c, redelivered("a"), 1)
	wantCrashes(t, "crashes of the living one's message", c, redelivered("b"), 0)
}

func TestTooManyReplicas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range maxFiles {
		begin(t, dir)
	}
	if _, err := Open(Options{Dir: dir, Queue: "q", Limit: 1, Workers: 1}); !errors.Is(err, errInUse) {
		t.Errorf("%v, want %v", err, errInUse)
	}
}

// TestFullDisk: messages go on, one line says that crashes are not counted.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := begin(t, t.TempDir())
	p.die(t)
	p.journal.f = must.Get(os.OpenFile("/dev/full", os.O_RDWR, 0))(t)
	for range 3 {
		p.begin(t, 0, arrived("a")).settle(false)
	}
	if n := strings.Count(p.log.String(), "crash journal not written"); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, p.log)
	}
}

func TestNothingIsAllocatedPerMessage(t *testing.T) {
	d, m, ctx := begin(t, t.TempDir()).Around(answers(status200), nil), arrived("a"), t.Context()
	if n := testing.AllocsPerRun(100, func() { d.Dispatch(ctx, m) }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkMessage(b *testing.B) {
	d, m := begin(b, b.TempDir()).Around(answers(status200), nil), arrived("a")
	m.Body = make([]byte, 1024)
	for b.Loop() {
		d.Dispatch(b.Context(), m)
	}
}
