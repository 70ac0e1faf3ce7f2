package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// helps has for each command its usage line, a word of its summary and its flags.
var helps = map[string]struct{ usage, summary, flags string }{
	"":               {"[COMMAND]", "POSTs", ""},
	"run":            {"", "Consume", ""},
	"check":          {"[flags]", "prove", "--json --roundtrip"},
	"plan":           {"[flags]", "declared", "--format --json --subscription"},
	"explain":        {"--status N|--failure KIND [flags]", "verdict", "--body --disposition --failure --json --retry --retry-after --routing-key --status --subscription --type"},
	"config":         {"[flags]", "configuration", "--json"},
	"drain":          {"", "drain", ""},
	"health":         {"[live|ready|startup]", "ready", ""},
	"completion":     {"bash|zsh|fish", "shell", ""},
	"man":            {"", "manual page", ""},
	"version":        {"[flags]", "commit", "--json"},
	"dlq":            {"COMMAND", "dead-letter", conditionFlags},
	"dlq list":       {"[conditions] [flags]", "parked", "--json --limit --quiet --scan --subscription" + conditionFlags},
	"dlq groups":     {"[conditions] [flags]", "largest", "--json --quiet --scan --subscription" + conditionFlags},
	"dlq show":       {"ID [flags]", "reference", "--json --max-body --no-body --quiet --subscription"},
	"dlq redrive":    {"ID...|conditions|--all [flags]", "flow", "--all --as --canary --canary-timeout --dry-run --json --limit --quiet --rate --reset --subscription --to" + conditionFlags},
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
			code, out, errs := callSidecar(t, nil, append(strings.Fields(name), "--help")...)
			if code != 0 || errs != "" {
				t.Fatalf("exit %d: %s", code, errs)
			}
			words := strings.Fields(name)
			ways := [][]string{append(slices.Clone(words), "-h"), append([]string{"help"}, words...)}
			if len(words) > 0 {
				ways = append(ways, slices.Insert(slices.Clone(words), 1, "help"))
			}
			for _, way := range ways {
				inGroup := want.usage == "COMMAND" || len(words) == 2 || way[len(way)-1] != "help"
				if _, other, _ := callSidecar(t, nil, way...); other != out && inGroup {
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

// TestHelpOfEveryCommand: helps has every command, and the help of the commands above it names it.
func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	for above, below := range map[string][]subcommand{"": commands, "dlq": dlqGroup.commands, "outbox": outboxGroup.commands} {
		_, help, _ := callSidecar(t, nil, append(strings.Fields(above), "help")...)
		help = strings.Join(strings.Fields(help), " ")
		for _, s := range below {
			if name := strings.TrimSpace(above + " " + s.name); helps[name].summary == "" && name != "help" {
				t.Errorf("no test of the help of %s", name)
			}
			if !strings.Contains(help, " "+s.name+" "+s.summary+" ") {
				t.Errorf("the help of %q does not have %s:\n%s", above, s.name, help)
			}
		}
	}
}
