package amqpwire

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Spool keeps bodies that are larger than the whole memory budget in files, which are mapped: such a message can be
// parked without ever being in memory as a whole.
type Spool struct {
	dir   string
	limit int64
	used  atomic.Int64

	mu     sync.Mutex
	bodies map[*spooled]struct{} // evict runs while there are any
}

// NewSpool returns a spool in dir, which may use up to limit bytes of disk.
func NewSpool(dir string, limit int64) *Spool { return &Spool{dir: dir, limit: limit} }

// spooled is one body in a file that has no name any more: a crash leaves nothing behind.
type spooled struct {
	spool  *Spool
	size   int64
	memory []byte // the file
}

// Pages of a file leave the process's memory soon after they were used: when so many bytes have arrived, and every so
// often while the body is read. They stay in the kernel's cache, which gives them up when memory is short.
const (
	evictBytes = 4 << 20
	evictEvery = 2 * time.Millisecond
)

var (
	errNoSpool  = errors.New("no directory for spooled bodies is set (SIDECAR_SPOOL_DIR)")
	errSpoolRAM = errors.New("the file system is in memory; SIDECAR_SPOOL_DIR needs one on a disk")
)

// create reserves the disk space first: a write to a mapped file that finds none ends the process.
func (s *Spool) create(size int64) (_ *spooled, err error) {
	if s == nil || s.dir == "" {
		return nil, errNoSpool
	}
	if s.used.Add(size) > s.limit {
		s.used.Add(-size)
		return nil, fmt.Errorf("spool to %s: a file of %d bytes would be more than %d bytes in all", s.dir, size, s.limit)
	}
	defer func() {
		if err != nil {
			s.used.Add(-size)
			err = fmt.Errorf("spool to %s: %w", s.dir, err)
		}
	}()
	var fs unix.Statfs_t
	if err = unix.Statfs(s.dir, &fs); err != nil {
		return nil, err
	}
	// #nosec G115 -- 32 bits of it count
	if kind := uint32(fs.Type); kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC {
		return nil, errSpoolRAM
	}
	f, err := os.CreateTemp(s.dir, "sidecar-body-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping holds the file
	if err = os.Remove(f.Name()); err != nil {
		return nil, err
	}
	fd := int(f.Fd()) // #nosec G115 -- a file descriptor
	if err = unix.Fallocate(fd, 0, 0, size); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	one := &spooled{spool: s, size: size, memory: b}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		s.bodies = map[*spooled]struct{}{}
		go s.evict(s.bodies)
	}
	s.bodies[one] = struct{}{}
	return one, nil
}

// evict ends with the last of bodies.
func (s *Spool) evict(bodies map[*spooled]struct{}) {
	t := time.NewTicker(evictEvery)
	defer t.Stop()
	for range t.C {
		s.mu.Lock()
		for one := range bodies {
			one.leave()
		}
		none := len(bodies) == 0
		s.mu.Unlock()
		if none {
			return
		}
	}
}

// leave takes the pages out of the process's memory. What was written stays in the file.
func (s *spooled) leave() { _ = unix.Madvise(s.memory, unix.MADV_DONTNEED) }

// arrived notes that the body has grown from one length to another.
func (s *spooled) arrived(from, to int) {
	if s != nil && from/evictBytes != to/evictBytes {
		s.leave()
	}
}

func (s *spooled) free() {
	s.spool.mu.Lock()
	delete(s.spool.bodies, s) // before its addresses may be those of something else
	s.spool.mu.Unlock()
	_ = unix.Munmap(s.memory)
	s.spool.used.Add(-s.size)
}
