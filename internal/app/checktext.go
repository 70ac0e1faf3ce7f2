package app

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sidecar/internal/terminal"
	"sidecar/internal/topology/declare"
)

// print writes r for people; with the line about the broker, which all subscriptions share, if it is the first.
func (r *CheckResult) print(w io.Writer, first bool, paint func(string) string) {
	line := func(word, text string) {
		if r.Name != "" && word != "broker" {
			text = r.Name + ": " + text
		}
		_, _ = fmt.Fprintf(w, "%s%s%s\n", paint(word), "         "[len(word):], terminal.Line(text))
	}
	part := func(name, text string) {
		if text != "" { // an empty part is omitted
			_, _ = fmt.Fprintf(w, "         %-7s %s\n", name, terminal.Line(text))
		}
	}
	if first {
		line("broker", fmt.Sprintf("%s, virtual host %q, user %q", strings.Join(r.Broker, ", "), r.Vhost, r.User))
	}
	for _, warning := range r.Warnings {
		line("warning", warning)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, f := range r.Findings {
		if f.Problem == declare.ProblemMissing {
			if !r.alike(i-1, i) {
				line(f.Judgement.String(), fmt.Sprintf("missing in virtual host %q", r.Vhost))
			}
			_, _ = fmt.Fprintf(table, "         %s\t%s\n", terminal.Line(f.Object), terminal.Line(f.Wanted))
			if r.alike(i, i+1) {
				continue
			}
			_ = table.Flush()
		} else {
			line(f.Judgement.String(), f.Object+": "+string(f.Problem))
			part("wanted", f.Wanted)
		}
		if f.Found != "nothing" {
			part("found", f.Found)
		}
		part("means", f.Reason)
		part("fix", f.Fix)
	}
	for _, note := range r.notes {
		line("note", note)
	}
	if r.ok != "" {
		line("ok", r.ok)
	}
}

// alike reports whether two findings are about missing objects and have the same fix: they are rows of one table.
func (r *CheckResult) alike(i, j int) bool {
	if i < 0 || j == len(r.Findings) {
		return false
	}
	a, b := r.Findings[i], r.Findings[j]
	return a.Problem == declare.ProblemMissing && a.Problem == b.Problem && a.Fix == b.Fix && a.Found == b.Found
}
