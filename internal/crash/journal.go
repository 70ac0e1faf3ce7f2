package crash

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"sidecar/internal/message"
)

// A journal is a file of fixed size that is written in place and never synced: it has to outlive the process, not the
// machine. What is written is in the system's hands at once, so a kill -9 loses none of it.
//
//	header      64 bytes: magic, zeros
//	slots       64 bytes each: what a worker has in flight, then what is suspected
//
//	slot        0 state  1 alone  4..8 CRC-32 of 1 and 8..36  8..12 crashes  12..20 time  20..36 identity
//
// Integers are little endian; the time is in seconds since 1970. A slot whose checksum is wrong is not a slot.
const (
	magic    = "sidecar crash journal 1\n"
	unit     = 64
	maxSlots = 1 << 16
	maxFiles = 64 // of one queue in one directory: one for each process
)

// States of a slot.
const (
	empty     byte = 0
	inHand    byte = 'F'
	suspected byte = 'S'
)

var (
	errForeign = errors.New("not a crash journal of this user")
	errInUse   = errors.New("in use by another sidecar")
)

type entry struct {
	state   byte
	alone   bool   // no other attempt was under way at the last crash
	crashes uint32 // that are not in the message's own headers
	at      int64  // seconds since 1970
	id      identity
}

type journal struct{ f *os.File }

// fileName is a journal's name: n distinguishes the sidecars of one machine that serve the same queue.
func fileName(queue string, n int) string {
	sum := sha256.Sum256([]byte(queue))
	return fmt.Sprintf("sidecar-%x-%d.journal", sum[:8], n)
}

// openJournal takes the first journal of queue in dir that is not locked, with what it says. Files of that name that
// are something else are left alone. The error is the first one met, if no journal could be had.
func openJournal(dir, queue string) (*journal, []entry, error) {
	var first error
	for n := range maxFiles {
		path := filepath.Join(dir, fileName(queue, n))
		f, err := openLocked(path)
		if err == nil {
			var said []entry
			if said, err = readEntries(f); err == nil {
				return &journal{f}, said, nil
			}
			_ = f.Close()
			err = fmt.Errorf("%s: %w", path, err)
		}
		if first == nil || errors.Is(first, errInUse) {
			first = err
		}
	}
	return nil, nil, first
}

// readEntries returns what a journal says. An empty file, and one of zeros as a crash of the machine can leave it, is
// new.
func readEntries(f *os.File) ([]entry, error) {
	b, err := io.ReadAll(io.LimitReader(f, (maxSlots+1)*unit))
	if err != nil {
		return nil, err
	}
	head := string(b[:min(len(b), len(magic))])
	if head == string(make([]byte, len(head))) {
		return nil, nil
	}
	if head != magic {
		return nil, errForeign
	}
	var said []entry
	for at := unit; at+unit <= len(b); at += unit {
		if e, ok := decode(b[at : at+unit]); ok {
			said = append(said, e)
		}
	}
	return said, nil
}

func decode(b []byte) (e entry, ok bool) {
	e = entry{
		state: b[0], alone: b[1] == 1,
		crashes: binary.LittleEndian.Uint32(b[8:]), id: identity(b[20:36]),
		at: int64(binary.LittleEndian.Uint64(b[12:])), // #nosec G115 -- the bits that encode wrote
	}
	known := e.state == inHand || e.state == suspected
	return e, known && checksum(b) == binary.LittleEndian.Uint32(b[4:])
}

func (e *entry) encode(b *[unit]byte) {
	*b = [unit]byte{0: e.state}
	if e.alone {
		b[1] = 1
	}
	binary.LittleEndian.PutUint32(b[8:], e.crashes)
	binary.LittleEndian.PutUint64(b[12:], uint64(e.at)) // #nosec G115 -- the bits, for decode
	copy(b[20:36], e.id[:])
	binary.LittleEndian.PutUint32(b[4:], checksum(b[:]))
}

func checksum(b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(b[1:2]), crc32.IEEETable, b[8:36])
}

// reset writes the whole file anew: no attempt under way, and the suspects. It reserves all the space that the file
// will ever need, so that a full disk later does no harm.
func (j *journal) reset(workers, room int, suspects []entry) error {
	image := make([]byte, (1+workers+room)*unit)
	copy(image, magic)
	for i := range suspects {
		suspects[i].encode((*[unit]byte)(image[(1+workers+i)*unit:]))
	}
	if _, err := j.f.WriteAt(image, 0); err != nil {
		return err
	}
	return j.f.Truncate(int64(len(image)))
}

// write writes one slot; buf is the caller's, so that nothing is allocated for it.
func (j *journal) write(slot int, e *entry, buf *[unit]byte) error {
	e.encode(buf)
	_, err := j.f.WriteAt(buf[:], int64(1+slot)*unit)
	return err
}

var emptySlot = []byte{empty}

func (j *journal) clear(slot int) error {
	_, err := j.f.WriteAt(emptySlot, int64(1+slot)*unit)
	return err
}

func now() int64 { return time.Now().Unix() }

// identity distinguishes messages across restarts and across trips through the retry queue, so nothing is in it that a
// broker or a republish changes. Messages without an id that are equal in everything have the same one: what one of
// them does, the others do.
type identity [16]byte

// hasher makes identities without allocating. One per worker.
type hasher struct {
	h   hash.Hash
	buf []byte
}

func newHasher() hasher { return hasher{h: sha256.New(), buf: make([]byte, 0, 512)} }

func (x *hasher) identify(m *message.Message) (id identity) {
	b := x.buf[:0]
	for _, s := range [...]string{
		m.MessageID, m.CorrelationID, m.Type, m.AppID, m.ContentType, m.ContentEncoding, m.Exchange, m.RoutingKey,
	} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	var at int64
	if !m.Timestamp.IsZero() {
		at = m.Timestamp.Unix()
	}
	b = binary.AppendVarint(b, at)
	b = append(b, m.Priority)
	x.h.Reset()
	x.h.Write(b)
	x.h.Write(m.Body)
	x.buf = b
	copy(id[:], x.h.Sum(b[:0]))
	return id
}
