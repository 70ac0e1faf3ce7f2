package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sidecar/internal/app"
	"sidecar/internal/deadletter"
)

// helps has for each command its usage line, a word of its summary and its flags.
var helps = map[string]struct{ usage, summary, flags string }{
	"":               {"[COMMAND]", "POSTs", ""},
	"run":            {"", "Consume", ""},
	"check":          {"[flags]", "prove", "--json --roundtrip"},
	"plan":           {"[flags]", "declared", "--format --json --subscription"},
	"explain":        {"--status N|--failure KIND [flags]", "verdict", "--body --disposition --exchange --failure --header --json --retry --retry-after --routing-key --status --subscription --type"},
	"config":         {"[flags]", "configuration", "--changed --json"},
	"drain":          {"", "drain", ""},
	"health":         {"[live|ready|startup]", "ready", ""},
	"completion":     {"bash|zsh|fish", "shell", ""},
	"man":            {"", "manual page", ""},
	"version":        {"[flags]", "commit", "--json"},
	"dlq":            {"COMMAND", "dead-letter", conditionFlags},
	"dlq list":       {"[conditions] [flags]", "parked", "--json --limit --quiet --scan --subscription" + conditionFlags},
	"dlq groups":     {"[conditions] [flags]", "largest", "--json --quiet --scan --subscription" + conditionFlags},
	"dlq show":       {"ID [flags]", "reference", "--json --max-body --no-body --quiet --subscription"},
	"dlq redrive":    {"ID...|conditions|--all [flags]", "flow", "--all --as --canary --canary-timeout --dry-run --json --limit --plain --quiet --rate --reset --subscription --to" + conditionFlags},
	"dlq discard":    {"ID...|conditions|--all [flags]", "permanently", "--all --as --dry-run --json --limit --quiet --subscription --yes" + conditionFlags},
	"dlq export":     {"[FILE|-] [conditions] [flags]", "JSON Lines", "--force --json --limit --quiet --subscription" + conditionFlags},
	"dlq import":     {"[FILE|-] [flags]", "exported", "--as --json --quiet --skip --subscription"},
	"outbox":         {"COMMAND", "SIDECAR_OUTBOX_TABLE", ""},
	"outbox migrate": {"[flags]", "table", "--no-notify --print"},
	"outbox status":  {"[flags]", "wait", "--json"},
	"outbox prune":   {"[flags]", "Delete", "--json --older-than"},
	"outbox retry":   {"ID...|--all [flags]", "quarantine", "--all --json"},
}

const conditionFlags = " --correlation-id --error --group --header --id --newer --older --reason --routing-key --status --text"

// TestHelp: every command has the same form of help, asked for in each way, without a configuration.
func TestHelp(t *testing.T) {
	t.Parallel()
	for name, want := range helps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(name)
			code, out, errs := callSidecar(t, nil, append(slices.Clone(words), "--help")...)
			if code != 0 || errs != "" {
				t.Fatalf("exit %d: %s", code, errs)
			}
			ways := [][]string{append(slices.Clone(words), "-h"), append([]string{"help"}, words...)}
			if len(words) == 2 {
				ways = append(ways, slices.Insert(slices.Clone(words), 1, "help"))
			}
			for _, way := range ways {
				if _, other, _ := callSidecar(t, nil, way...); other != out {
					t.Errorf("%q prints %s", way, other)
				}
			}
			for line := range strings.Lines(out) {
				if utf8.RuneCountInString(line) > 73 || strings.HasSuffix(line, " \n") {
					t.Errorf("too wide, or blanks at the end: %q", line)
				}
			}
			line := strings.Join(strings.Fields("usage: sidecar "+name+" "+want.usage), " ")
			_, body, found := strings.Cut(out, line+"\n\n")
			summary, _, _ := strings.Cut(body, "\n\n")
			if !found || !strings.Contains(summary, want.summary) {
				t.Errorf("no %q, or no %q below it:\n%s", line, want.summary, out)
			}
			var flags []string
			for _, m := range regexp.MustCompile(`(?m)^  (--?[a-z-]+).*  [^ ]`).FindAllStringSubmatch(out, -1) {
				flags = append(flags, m[1])
			}
			if !slices.Equal(flags, strings.Fields(want.flags)) {
				t.Errorf("flags %q, want %s", flags, want.flags)
			}
			if !strings.Contains(out, "\nExamples:\n\n  sidecar "+name) {
				t.Errorf("no example:\n%s", out)
			}
		})
	}
}

// each calls do with every command below top, and the words that name it.
func each(above []string, of []subcommand, do func(name string, s *subcommand)) {
	for i := range of {
		words := append(slices.Clone(above), of[i].name)
		do(strings.Join(words, " "), &of[i])
		each(words, of[i].below, do)
	}
}

// TestEveryCommand: each has a test of its help, is in the help of the group above it, and is in the manual page with its
// flags; what could be an instruction there is text.
func TestEveryCommand(t *testing.T) {
	t.Parallel()
	_, page, _ := callSidecar(t, nil, "man")
	each(nil, append(slices.Clone(top.below), helpCommand), func(name string, s *subcommand) {
		want, found := helps[name]
		if !found && name != "help" {
			t.Errorf("no test of the help of %s", name)
		}
		_, above, _ := callSidecar(t, nil, append(strings.Fields(strings.TrimSuffix(name, s.name)), "--help")...)
		if !strings.Contains(strings.Join(strings.Fields(above), " "), " "+s.name+" "+s.summary+" ") {
			t.Errorf("no %s in:\n%s", name, above)
		}
		_, section, found := strings.Cut(page, "\n.SS sidecar "+name)
		section, _, _ = strings.Cut(section, "\n.SS ")
		for f := range strings.FieldsSeq(want.flags) {
			found = found && strings.Contains(section, "\n  "+roff(f))
		}
		if !found {
			t.Errorf("%s is not in the page, or one of %s:\n%s", name, want.flags, section)
		}
	})
	if got := roff(".a\\b\n'c-d\n.e"); got != `\&.a\eb`+"\n"+`\&'c\-d`+"\n"+`\&.e` {
		t.Errorf("%q", got)
	}
}

// TestCandidates: what the program offers for completion that the library cannot know by itself.
func TestCandidates(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help dlq ":             "list groups show redrive discard export import :4",
		"health ":               "live ready startup :4",
		"completion ":           "bash zsh fish :4",
		"plan --format ":        "text mermaid definitions permissions json :4",
		"explain --failure=":    strings.Join(app.Failures, " ") + " :4",
		"dlq list --status ":    "4xx 5xx none :4",
		"dlq list --error ":     ":4",
		"dlq redrive --a":       "--all --as :4",
		"dlq export --limit 1 ": ":0",
	} {
		_, out, _ := callSidecar(t, nil, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		var got []string
		for l := range strings.Lines(out) {
			name, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
			got = append(got, name)
		}
		slices.Sort(got)
		sorted := strings.Fields(want)
		if slices.Sort(sorted); !slices.Equal(got, sorted) {
			t.Errorf("%q: %q, want %s", line, got, want)
		}
	}
}

// TestUsualValues: every value that is offered is one that the condition takes.
func TestUsualValues(t *testing.T) {
	t.Parallel()
	for name, values := range usualValues {
		for _, v := range values {
			var f deadletter.Filter
			if err := f.Set(name, v); err != nil {
				t.Error(err)
			}
		}
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
