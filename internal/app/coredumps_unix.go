//go:build unix

package app

import "syscall"

// DisableCoreDumps keeps the process from leaving an image of its memory behind, with credentials and messages in it,
// when the kernel or GOTRACEBACK=crash ends it. The limit is 1 byte and not 0 because Linux obeys 0 only where dumps
// are files: where they are piped to a program, as systemd and Ubuntu set it up, only 1 prevents them.
func DisableCoreDumps() {
	// A process may lower its own limit without any right. If a seccomp filter forbids it, the sidecar runs all the same.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1})
}
