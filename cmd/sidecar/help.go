package main

import (
	"flag"
	"fmt"
	"strings"
	"unicode/utf8"
)

const helpWidth = 80 // columns

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
		if w, ok := f.Value.(*words); ok && w.condition {
			conditions = append(conditions, term{name, text})
		} else if text != "" { // a short form has none
			flags = append(flags, term{name, text})
		}
	})
	return flags, conditions
}

// below are the commands of a group.
func (c *call) below() (commands []term) {
	if c.group != nil {
		for _, s := range c.group.commands {
			commands = append(commands, term{s.name, s.summary})
		}
	}
	return commands
}

// usage is how a command is called.
func (c *call) usage() string {
	usage := strings.TrimRight(c.flags.Name()+" "+c.arguments, " ")
	if flags, _ := c.terms(); len(flags) > 0 {
		usage += " [flags]"
	}
	return usage
}

// about is what a command does.
func (c *call) about() string {
	if c.group != nil {
		return c.group.about
	}
	return strings.ToUpper(c.summary[:1]) + c.summary[1:] + "."
}

// exampleLines are complete commands, indented.
func (c *call) exampleLines() string {
	var b strings.Builder
	for _, e := range c.examples {
		b.WriteString(strings.TrimRight("  "+c.flags.Name()+" "+e, " ") + "\n")
	}
	return b.String()
}

// printUsage prints the help of a command or of a group of commands.
func (c *call) printUsage() {
	flags, conditions := c.terms()
	_, _ = fmt.Fprintf(c.stdout, "usage: %s\n\n%s\n", c.usage(), wrapped(c.about(), 0))
	c.printTerms("Commands", c.below())
	c.printTerms("Flags", flags)
	c.printTerms(conditionsTitle, conditions)
	_, _ = fmt.Fprintf(c.stdout, "\nExamples:\n\n%s", c.exampleLines())
	if c.group != nil {
		_, _ = fmt.Fprintf(c.stdout, "\n%s\n", wrapped(c.group.notes, 0))
	}
}

// printTerms prints terms, if there are any, below a title.
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
