//go:build !unix

package main

// terminalWidth knows no terminal here.
func terminalWidth(any) (columns int, ok bool) { return 0, false }
