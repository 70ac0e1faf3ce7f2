package main

import (
	"context"
	"strings"
)

const manEnvironment = `.SH EXIT STATUS
0 done or drained, 64 wrong configuration or command line, 1 anything else.
.SH ENVIRONMENT
The sidecar is configured by variables whose names begin with SIDECAR_. docs/configuration.md lists them;
.B sidecar config
prints those in effect.
.TP
.B SIDECAR_SERVICE
Required: the name of the service, from which the names of queues and exchanges are made.
.TP
.B SIDECAR_AMQP_URL
The broker.
.TP
.B SIDECAR_APP_URL
The app that takes the messages.
.TP
.B NO_COLOR
Not empty: no colours on a terminal.
.SH FILES
A variable whose name ends in _FILE names a file that holds the value of a secret. The file is read again when it
changes.
.SH SEE ALSO
docs/commands.md, docs/configuration.md and docs/dead\-letters.md, in the sources of this program.
`

// man prints the page sidecar(1).
func man(_ context.Context, c *call) error {
	if err := c.parse(0); err != nil {
		return err
	}
	root := described(*c.root, "")
	about, notes := root.about()
	c.say(".TH SIDECAR 1 \"\" \"sidecar %s\" \"User Commands\"\n.nh\n.SH NAME\nsidecar \\- %s", roff(version), roff(about))
	c.say(".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n%s\n%s\n.SH COMMANDS", roff(root.usage()), roff(about), roff(notes))
	c.manCommands(root)
	c.say(".SH EXAMPLES\n.EX\n%s.EE", roff(root.exampleLines()))
	c.say("%s", strings.TrimSuffix(manEnvironment, "\n"))
	return c.out.Flush()
}

// manCommands writes a section for each command below one.
func (c *call) manCommands(above *call) {
	for _, s := range above.group.commands {
		at := described(s, above.flags.Name())
		about, notes := at.about()
		flags, conditions := at.terms()
		c.say(".SS %s\n%s", roff(at.usage()), roff(about))
		c.manTerms("", flags)
		if at.group != nil { // the commands below it have the same
			c.manTerms(conditionsTitle+":", conditions)
		}
		c.say(".PP\n.EX\n%s.EE", roff(at.exampleLines()))
		if notes != "" {
			c.say(".PP\n%s", roff(notes))
		}
		if at.group != nil {
			c.manCommands(at)
		}
	}
}

func (c *call) manTerms(title string, terms []term) {
	for i, t := range terms {
		if i == 0 && title != "" {
			c.say(".PP\n%s", roff(title))
		}
		c.say(".TP\n.B %s\n%s", roff(t.name), roff(t.text))
	}
}

// roff writes text so that nothing in it is an instruction: a line must not begin with a dot or a quote.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace("\n" + text)
	return text[1:]
}
