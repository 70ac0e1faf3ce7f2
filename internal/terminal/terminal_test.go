package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestNothingHarmsATerminal goes through the characters below U+3000, where most of the harmful ones are, through every
// seventh of those that Unicode may have assigned above, and through the others that are known to do harm.
func TestNothingHarmsATerminal(t *testing.T) {
	t.Parallel()
	harmful := func(r rune) bool { return !unicode.IsPrint(r) }
	const together = 1024
	for first := rune(0); first <= unicode.MaxRune; first += together {
		if first >= 0x40000 && first < 0xe0000 || first >= 0xf0000 && first < 0x10f000 { // unassigned, private
			continue
		}
		var all, harmless strings.Builder
		all.WriteString("\ufeff\ufff9\ufffb\U0001d173\U000e0001\U000e007f")
		for r := first; r < first+together; r++ {
			if r > 0x3000 && r%7 != 0 {
				continue
			}
			if utf8.ValidRune(r) {
				all.WriteRune(r)
			}
			if utf8.ValidRune(r) && !harmful(r) {
				harmless.WriteRune(r)
			}
		}
		s := all.String()
		if got := Line(s); strings.ContainsFunc(got, harmful) || Line(harmless.String()) != harmless.String() {
			t.Fatalf("%q is printed as %q", s, got)
		}
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := Escape(plain)
		var back string
		if err := json.Unmarshal(escaped, &back); err != nil || back != s || bytes.ContainsFunc(escaped, harmful) {
			t.Fatalf("%q became %q, which is %q, %v", s, escaped, back, err)
		}
	}
	if got := Line("bad\xff\xfe"); got != "bad��" {
		t.Errorf("%q", got)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\r\nb\n":          "a\nb\n",
		"over\rwritten":     `over\rwritten`,
		"tab\tstays":        "tab\tstays",
		"\x1b[2Jx\n\u202ey": `\x1b[2Jx` + "\n" + `\u202ey`,
	} {
		if got := Lines(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	in := "{\"a\":\"é\u009b€\u202e😀\U000e0001\",\n\t\"b\":\"\u007f\xff\"}\n"
	want := "{\"a\":\"é\\u009b€\\u202e😀\\udb40\\udc01\",\n\t\"b\":\"\\u007f�\"}\n"
	if got := Escape([]byte(in)); string(got) != want {
		t.Errorf("%q", got)
	}
	plain := []byte("[\"plain\"]\n")
	if got := Escape(plain); &got[0] != &plain[0] {
		t.Error("plain text is copied")
	}
}

// TestWriter: on a terminal the sequences of the commands stay, and no others.
func TestWriter(t *testing.T) {
	t.Parallel()
	const in = "\r\x1b[1mbold\x1b[0m\x1b[K \x1b[2J\x1b]0;t\a \r\u009b31m é\t\n"
	for screen, want := range map[bool]string{
		false: `\u000d\u001b[1mbold\u001b[0m\u001b[K \u001b[2J\u001b]0;t\u0007 \u000d\u009b31m é` + "\t\n",
		true:  "\r\x1b[1mbold\x1b[0m\x1b[K " + `\u001b[2J\u001b]0;t\u0007 \u000d\u009b31m é` + "\t\n",
	} {
		var b strings.Builder
		n, err := io.WriteString(Writer{W: &b, Screen: screen}, in)
		if n != len(in) || err != nil || b.String() != want {
			t.Errorf("terminal: %v: %d %v %q, want %q", screen, n, err, b.String(), want)
		}
	}
	closed, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = closed.Close(), w.Close()
	if n, err := (Writer{W: w}).Write([]byte(in)); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed pipe took %d bytes: %v", n, err)
	}
}
