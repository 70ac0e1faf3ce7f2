package main

import (
	"context"
	"errors"
	"io"
	"strings"
)

// man prints the page sidecar(1).
func man(_ context.Context, c *call) error {
	if err := c.parse(0); err != nil {
		return err
	}
	page, err := shellFiles.ReadFile("shell/sidecar.1")
	var commands strings.Builder
	manCommands(&commands, described(*c.root, ""))
	fill := strings.NewReplacer("@VERSION@", roff(version), "@COMMANDS@\n", commands.String())
	_, writeErr := io.WriteString(c.stdout, fill.Replace(string(page)))
	return errors.Join(err, writeErr)
}

// manCommands writes a section for each command below one.
func manCommands(b *strings.Builder, above *call) {
	for _, s := range above.group.commands {
		at := described(s, above.flags.Name())
		flags, conditions := at.terms()
		b.WriteString(".SS " + roff(at.usage()) + "\n" + roff(at.about()) + "\n")
		if at.group != nil { // the commands below it have the same
			flags = append(flags, conditions...)
		}
		for _, t := range flags {
			b.WriteString(".TP\n.B " + roff(t.name) + "\n" + roff(t.text) + "\n")
		}
		b.WriteString(".PP\n.EX\n" + roff(at.exampleLines()) + ".EE\n")
		if at.group != nil {
			b.WriteString(".PP\n" + roff(at.group.notes) + "\n")
			manCommands(b, at)
		}
	}
}

// roff writes text so that nothing in it is an instruction: a line must not begin with a dot or a quote.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return text[1:]
}
