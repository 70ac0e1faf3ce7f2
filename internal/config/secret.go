package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// masked is printed in place of a secret.
const masked = "***"

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

// Secret is a value that must not be seen. Every way of printing it gives "***"; the zero value is a secret that was
// not set. It is a handle on shared state and may be copied.
//
// The state hides behind a function for a reason: where fmt cannot call methods (in unexported fields) it follows
// pointers, but of a function it prints the address and nothing else.
type Secret struct{ from func() *source }

func newSecret(s *source) Secret { return Secret{from: func() *source { return s }} }

// source is where a secret's value comes from: the environment, or a file that may be replaced at any time.
type source struct {
	name  string             // of the variable that was set
	path  string             // "" when the value is in the environment
	check func(string) error // for every value read; its errors repeat no part of the value

	mu    sync.Mutex
	value string      // the last good one
	seen  fs.FileInfo // of the file value was read from
	read  time.Time   // when
}

// IsSet reports whether the secret was configured.
func (s Secret) IsSet() bool { return s.from != nil }

// Value returns the secret, "" when it was not set. A secret that came from a file is read again when the file has
// changed, which costs one stat when it has not. With an error comes the last good value, for callers that must go on.
func (s Secret) Value() (string, error) {
	if s.from == nil {
		return "", nil
	}
	return s.from().current()
}

func (s *source) current() (string, error) {
	if s.path == "" {
		return s.value, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if info, err := os.Stat(s.path); err == nil && s.unchanged(info) {
		return s.value, nil
	}
	now := time.Now()
	value, info, err := readSecret(s.path)
	if err == nil && s.check != nil {
		err = s.check(value)
	}
	if err != nil {
		return s.value, fmt.Errorf("read %s: %w", s.name, err)
	}
	s.value, s.seen, s.read = value, info, now
	return s.value, nil
}

// unchanged trusts a modification time only once it is old enough: two writes within the clock tick of a file system
// carry the same one.
func (s *source) unchanged(info fs.FileInfo) bool {
	return s.seen != nil && os.SameFile(s.seen, info) && s.seen.Size() == info.Size() &&
		s.seen.ModTime().Equal(info.ModTime()) && s.read.Sub(info.ModTime()) > time.Second
}

func readSecret(path string) (string, fs.FileInfo, error) {
	b, info, err := readRegular(path, maxSecret)
	if err != nil {
		return "", nil, err
	}
	// Editors and echo end a file with a newline; one, not all, so that a value may still end in one.
	v := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if v == "" {
		return "", nil, errors.New("the file is empty")
	}
	return v, info, nil
}

// Format prints "***" for every verb and flag.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText makes encoders and slog print "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
