//go:build !unix

package main

// terminalWidth reports no terminal: tables have their full width, and discard needs --yes.
func terminalWidth(any) (columns int, ok bool) { return 0, false }
