//go:build !unix

package app

// DisableCoreDumps does nothing: only Unix systems have a limit for them.
func DisableCoreDumps() {}
