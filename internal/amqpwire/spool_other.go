//go:build !linux

package amqpwire

import "errors"

// Spool keeps bodies that are larger than the whole memory budget in files. It exists on Linux only.
type Spool struct{}

// NewSpool returns a spool that takes nothing.
func NewSpool(string, int64) *Spool { return nil }

type spooled struct{ memory []byte }

func (*Spool) create(int64) (*spooled, error) {
	return nil, errors.New("bodies are spooled to files on Linux only")
}

func (*spooled) arrived(int, int) {}

func (*spooled) free() {}
