package main

import (
	"slices"
	"strings"
	"testing"

	"sidecar/internal/deadletter"
)

// offered are the names that completion offers behind a command line; what is behind its last blank is being typed.
func offered(t *testing.T, line string) (names []string) {
	t.Helper()
	args := append([]string{"completion", "candidates", "--"}, strings.Split(line, " ")...)
	code, out, errs := callSidecar(t, nil, args...)
	if code != 0 || errs != "" {
		t.Fatalf("%q: exit %d: %s", line, code, errs)
	}
	for l := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		names = append(names, name)
	}
	return names
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"pl":                           "plan",
		"help dlq re":                  "redrive",
		"dlq re":                       "redrive",
		"--":                           "--help",
		"xyz ":                         "",
		"dlq xyz ":                     "",
		"health ":                      "live ready startup",
		"completion ":                  "bash zsh fish",
		"plan ":                        "--format --json --subscription --help",
		"plan --format ":               "text mermaid definitions permissions json",
		"plan --format=m":              "--format=mermaid",
		"plan --format = m":            "mermaid", // bash splits it so
		"dlq list --status =":          "4xx 5xx none",
		"dlq list --error help --re":   "--reason",
		"dlq export -- --st":           ":files",
		"plan --json --format json --": "--format --json --subscription --help",
		"explain --disposition p":      "park",
		"explain --nosuch ":            "--body --disposition --failure --json --retry --retry-after --routing-key --status --subscription --type --help",
		"dlq list --status ":           "4xx 5xx none",
		"dlq list -- --routing":        "",
		"dlq export ":                  ":files",
		"dlq redrive --a":              "--all --as",
	} {
		if got := offered(t, line); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %s", line, got, want)
		}
	}
	if got := offered(t, ""); len(got) != len(commands) {
		t.Errorf("%q", got)
	}
	if code, out, errs := callSidecar(t, nil, "completion", "candidates", "--"); code != 64 {
		t.Errorf("exit %d: %s%s", code, out, errs)
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

// TestManHasEveryFlag: the page has each command with its flags, and what could be an instruction is text.
func TestManHasEveryFlag(t *testing.T) {
	t.Parallel()
	_, page, _ := callSidecar(t, nil, "man")
	for name, want := range helps {
		if name == "" {
			continue
		}
		_, section, found := strings.Cut(page, "\n.SS sidecar "+name)
		section, _, _ = strings.Cut(section, "\n.SS ")
		for f := range strings.FieldsSeq(strings.TrimSuffix(want.flags, conditionFlags)) {
			found = found && (strings.Contains(section, "\n  "+roff(f)) || strings.Contains(conditionFlags, f))
		}
		if !found {
			t.Errorf("%s is not in the page, or one of %s:\n%s", name, want.flags, section)
		}
	}
	if got := roff(".a\\b\n'c-d\n.e"); got != `\&.a\eb`+"\n"+`\&'c\-d`+"\n"+`\&.e` {
		t.Errorf("%q", got)
	}
}
