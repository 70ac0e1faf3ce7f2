package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/deadletter"
)

// TestNothingHarmsATerminal goes through all characters there are.
func TestNothingHarmsATerminal(t *testing.T) {
	t.Parallel()
	harmful := func(r rune) bool { return !unicode.IsPrint(r) }
	const together = 1024
	for first := rune(0); first <= unicode.MaxRune; first += together {
		var all, harmless strings.Builder
		for r := first; r < first+together; r++ {
			if utf8.ValidRune(r) {
				all.WriteRune(r)
			}
			if utf8.ValidRune(r) && !harmful(r) {
				harmless.WriteRune(r)
			}
		}
		s := all.String()
		if got := printable(s); strings.ContainsFunc(got, harmful) || printable(harmless.String()) != harmless.String() {
			t.Fatalf("%q is printed as %q", s, got)
		}
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := deadletter.EscapeJSON(plain)
		var back string
		if err := json.Unmarshal(escaped, &back); err != nil || back != s || bytes.ContainsFunc(escaped, harmful) {
			t.Fatalf("%q became %q, which is %q, %v", s, escaped, back, err)
		}
	}
	if got := printable("bad\xff\xfe"); got != "bad��" {
		t.Errorf("%q", got)
	}
}

func TestPrintableLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\r\nb\n":          "a\nb\n",
		"over\rwritten":     `over\rwritten`,
		"tab\tstays":        "tab\tstays",
		"\x1b[2Jx\n\u202ey": `\x1b[2Jx` + "\n" + `\u202ey`,
	} {
		if got := printableLines(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestEscapedJSON(t *testing.T) {
	t.Parallel()
	in := "{\"a\":\"é\u009b€\u202e😀\U000e0001\"}\n{\"b\":\"\u007f\"}\n"
	want := `{"a":"é\u009b€\u202e😀\udb40\udc01"}` + "\n" + `{"b":"\u007f"}` + "\n"
	if got := deadletter.EscapeJSON([]byte(in)); string(got) != want {
		t.Errorf("%q", got)
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 0: "now", 59 * time.Second: "59s ago", time.Minute: "1m ago", 3*time.Minute + 50*time.Second: "3m ago",
		47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", 400 * 24 * time.Hour: "400d ago",
	} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := ago(time.Time{}, now); got != "-" {
		t.Errorf("unknown: %q", got)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
