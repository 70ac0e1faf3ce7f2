package main

import (
	"flag"
	"fmt"
	"strings"
	"unicode/utf8"
)

const helpWidth = 72 // columns: the manual page indents the help

const conditionsTitle = "Conditions. All must hold; of several values for one any, of several headers all"

// term is a command or a flag, and what it does.
type term struct{ name, text string }

// terms are the flags of a command, those for conditions separately.
func (c *call) terms() (flags, conditions []term) {
	c.flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		name := strings.TrimRight("--"+f.Name+" "+strings.ToUpper(value), " ")
		if f.Name == "quiet" {
			name += ", -q"
		}
		if w, ok := f.Value.(*wordFlag); ok && w.condition {
			conditions = append(conditions, term{name, text})
		} else if text != "" { // a short form has none
			flags = append(flags, term{name, text})
		}
	})
	return flags, conditions
}

func (c *call) subcommands() (commands []term) {
	if c.group != nil {
		for _, s := range c.group.commands {
			commands = append(commands, term{s.name, s.summary})
		}
	}
	return commands
}

func (c *call) printUsage() {
	flags, conditions := c.terms()
	usage, description := strings.TrimRight(c.flags.Name()+" "+c.arguments, " "), c.summary+"."
	if len(flags) > 0 {
		usage += " [flags]"
	}
	if c.group != nil {
		description = c.group.description
	}
	description = strings.ToUpper(description[:1]) + description[1:]
	_, _ = fmt.Fprintf(c.stdout, "usage: %s\n\n%s\n", usage, wrapped(description, 0))
	c.printTerms("Commands", c.subcommands())
	c.printTerms("Flags", flags)
	c.printTerms(conditionsTitle, conditions)
	_, _ = fmt.Fprint(c.stdout, "\nExamples:\n\n")
	for _, e := range c.examples {
		_, _ = fmt.Fprintln(c.stdout, strings.TrimRight("  "+c.flags.Name()+" "+e, " "))
	}
	if c.group != nil {
		_, _ = fmt.Fprintf(c.stdout, "\n%s\n", wrapped(c.group.notes, 0))
	}
}

func (c *call) printTerms(title string, terms []term) {
	wide := 0
	for _, t := range terms {
		wide = max(wide, len(t.name))
	}
	for i, t := range terms {
		if i == 0 {
			_, _ = fmt.Fprintf(c.stdout, "\n%s\n\n", wrapped(title+":", 0))
		}
		_, _ = fmt.Fprintf(c.stdout, "  %-*s  %s\n", wide, t.name, wrapped(t.text, wide+4))
	}
}

// wrapped breaks a text, whose first line begins in column indent, into lines that fit.
func wrapped(text string, indent int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		switch at += 1 + utf8.RuneCountInString(word); {
		case i == 0:
			at--
		case at > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent + utf8.RuneCountInString(word)
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}
