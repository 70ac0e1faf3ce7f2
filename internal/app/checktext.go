package app

import (
	"fmt"
	"io"
	"slices"
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
	for all := slices.Clone(r.Findings); len(all) > 0; {
		f, table := all[0], ""
		if all = all[1:]; f.Problem == declare.ProblemMissing { // those that one fix repairs are one table
			table, all = tableOf(f, all)
			line(f.Judgement.String(), fmt.Sprintf("missing in virtual host %q", r.Vhost))
			_, _ = io.WriteString(w, table)
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

// tableOf returns a table of first and the findings that differ from it in nothing but the object, and the others.
func tableOf(first declare.Finding, all []declare.Finding) (table string, others []declare.Finding) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range append([]declare.Finding{first}, all...) {
		same := first
		if same.Object, same.Wanted, same.Declared = f.Object, f.Wanted, f.Declared; same != f {
			others = append(others, f)
			continue
		}
		_, _ = fmt.Fprintf(w, "         %s\t%s\n", terminal.Line(f.Object), terminal.Line(f.Wanted))
	}
	_ = w.Flush()
	return text.String(), others
}
