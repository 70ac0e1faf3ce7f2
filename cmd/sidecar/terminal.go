package main

import (
	"bufio"
	"io"
	"slices"
	"strings"

	"sidecar/internal/terminal"
)

// Colours, as parameters of SGR.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func paint(s, colour string) string { return "\x1b[" + colour + "m" + s + "\x1b[0m" }

// coloured reports whether a stream is a terminal that has colours, and the user has nothing against them.
func (in *invocation) coloured(stream any) bool {
	_, terminal := terminalWidth(stream)
	return terminal && in.getenv("NO_COLOR") == "" && !slices.Contains([]string{"", "dumb"}, in.getenv("TERM"))
}

// painted is paint for a stream. Without a colour the text stays as it is.
func (in *invocation) painted(stream any, s, colour string) string {
	if colour != "" && in.coloured(stream) {
		return paint(s, colour)
	}
	return s
}

// getenv returns a variable that concerns the terminal or Go itself, not the configuration.
func (in *invocation) getenv(name string) string {
	for _, v := range in.environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// raw returns the stream behind the terminal.Writer that every command writes to: for output that is escaped already,
// and to find out whether it is a terminal.
func raw(w io.Writer) io.Writer {
	if safe, ok := w.(terminal.Writer); ok {
		return safe.W
	}
	return w
}

// safe returns a stream on which nothing can do harm to a terminal.
func safe(w io.Writer) io.Writer {
	_, screen := terminalWidth(w)
	return terminal.Writer{W: w, Screen: screen}
}

// output is a buffer before a stream.
type output struct {
	io.Writer
	buffer *bufio.Writer
}

func newOutput(w io.Writer) *output {
	b := bufio.NewWriter(raw(w))
	_, screen := terminalWidth(w)
	return &output{terminal.Writer{W: b, Screen: screen}, b}
}

// Flush returns the first error of the stream.
func (o *output) Flush() error { return o.buffer.Flush() }
