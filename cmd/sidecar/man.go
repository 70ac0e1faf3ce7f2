package main

import (
	"context"
	"errors"
	"io"
	"strings"
)

// man prints the page sidecar(1), with the help of every command.
func man(_ context.Context, c *call) error {
	if err := c.parse(0); err != nil {
		return err
	}
	var commands strings.Builder
	manCommands(&commands, described(*c.root, "", io.Discard))
	fill := strings.NewReplacer("@VERSION@", roff(version), "@EXIT_CODES@", roff(exitCodes),
		"@COMMANDS@\n", commands.String())
	page, err := shellFiles.ReadFile("shell/sidecar.1")
	_, writeErr := fill.WriteString(c.stdout, string(page))
	return errors.Join(err, writeErr)
}

func manCommands(b *strings.Builder, above *call) {
	for _, s := range above.group.commands {
		var help strings.Builder
		at := described(s, above.flags.Name(), &help)
		b.WriteString(".SS " + roff(at.flags.Name()) + "\n.EX\n" + roff(help.String()) + ".EE\n")
		if at.group != nil {
			manCommands(b, at)
		}
	}
}

// roff writes text so that nothing in it is an instruction: a line must not begin with a dot or a quote.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return text[1:]
}
