package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// style is an SGR parameter of the terminal.
type style string

const (
	plain  style = ""
	dim    style = "2"
	strong style = "1"
	good   style = "32"
	warn   style = "33"
	bad    style = "31"
)

// screen prints for people: aligned columns, and colours where there is a terminal to show them.
type screen struct {
	out    io.Writer
	colour bool
	start  time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, start: time.Now()}
	if f, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" {
		info, err := f.Stat()
		s.colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

func (s *screen) paint(st style, text string) string {
	if !s.colour || st == plain {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

func (s *screen) say(text string) { fmt.Fprintln(s.out, text) }

// indented prints the output of a command.
func (s *screen) indented(out []byte) {
	for line := range strings.Lines(string(out)) {
		s.say("  " + strings.TrimSuffix(line, "\n"))
	}
}

func (s *screen) title(text string) { s.say("\n" + s.paint(strong, text)) }

func (s *screen) line(message, who, what string, st style) {
	at := s.paint(dim, fmt.Sprintf("%6.2fs", time.Since(s.start).Seconds()))
	fmt.Fprintf(s.out, "%s  %-8s %-8s %s\n", at, message, who, s.paint(st, what))
}

func (s *screen) event(e event) {
	if e.answer != 0 {
		s.line(e.message, "app", fmt.Sprintf("attempt %d: answers %d", e.attempt, e.answer), dim)
		return
	}
	switch e.outcome {
	case "ack":
		s.line(e.message, "sidecar", "ack: done", good)
	case "retry":
		s.line(e.message, "sidecar", fmt.Sprintf("retry %d of %d (%s): waits %v in %s",
			e.retries+1, maxRetries, e.reason, retryDelay, retryQueue), warn)
	case "requeue":
		s.line(e.message, "sidecar", fmt.Sprintf("requeue (%s): back to its queue after a short delay, not counted",
			e.reason), warn)
	case "park":
		s.line(e.message, "sidecar", fmt.Sprintf("park (%s): confirmed publish to %s, then ack", e.reason, dlq), bad)
	case "release":
		s.line(e.message, "sidecar", fmt.Sprintf("release (%s): requeued, not counted", e.reason), warn)
	case "paused":
		s.line("", "sidecar", fmt.Sprintf("pauses (%s): takes nothing", e.reason), warn)
	case "app up":
		s.line("", "sidecar", "sees the app: takes messages", good)
	default:
		s.line(e.message, "sidecar", fmt.Sprintf("%s (%s)", e.outcome, e.reason), warn)
	}
}

func (s *screen) verdict(message, journey string, ok bool) {
	mark := s.paint(good, "as promised")
	if !ok {
		mark = s.paint(bad, "NOT AS PROMISED")
	}
	fmt.Fprintf(s.out, "  %-8s %-22s  %s\n", message, journey, mark)
}

// parked prints each message of the DLQ with the headers that say why it is there.
func (s *screen) parked(messages []amqp.Delivery) {
	for _, d := range messages {
		fmt.Fprintf(s.out, "  %s  %s\n", s.paint(strong, d.MessageId), d.Body)
		var names []string
		for name := range d.Headers {
			if strings.HasPrefix(name, "x-final-") || strings.HasPrefix(name, "x-original-") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			value := d.Headers[name]
			if t, ok := value.(time.Time); ok {
				value = t.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(s.out, "    %-24s %v\n", name, value)
		}
	}
}

func (s *screen) logs(children ...*child) {
	for _, c := range children {
		fmt.Fprintf(s.out, "\nlast lines of %s (%s):\n%s\n", c.name, c.log, c.tail())
	}
}

// kept says what is still running, where, and how to stop it.
func (s *screen) kept(st *stage) {
	s.title("Still running")
	for _, l := range [][2]string{
		{"broker", st.amqpURL},
		{"database", st.postgres},
		{"app", st.app.address},
		{"sidecar", st.sidecar.address + "/readyz, /metrics"},
		{"publish", "http://" + st.sidecar.addresses().Publish + "/publish/default/…"},
		{"logs", st.dir},
		{"stop", "scripts/demo.sh stop " + st.dir},
	} {
		fmt.Fprintf(s.out, "  %-8s %s\n", l[0], l[1])
	}
}
