package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sidecar/internal/app"
	"sidecar/internal/deadletter"
	"sidecar/internal/terminal"
)

var dlqGroup = subcommand{
	name: "dlq", arguments: "COMMAND",
	summary: "list, understand, redrive, discard, export or import parked messages; needs no running sidecar",
	description: "Works on the dead-letter queues of the configured topologies, straight in the broker. The environment " +
		"is that of sidecar run; no sidecar needs to run. Of several queues list, groups and show read one after the " +
		"other; all other commands are for one, which --subscription chooses.",
	notes: "list, groups, show and export change nothing. Only one command at a time can use a queue. Every command " +
		"takes --json for scripts and --help. " + exitCodes,
	prepare: func(c *call) execution { // for the help
		c.takesConditions()
		return nil
	},
	examples: []string{ // from an alert to a repaired queue
		"groups                                   # what fails",
		"list --group 5b7c0d1e9f24                # which messages",
		"show order-4711                          # with its body",
		"redrive --canary 3 --group 5b7c0d1e9f24  # three, then all",
	},
	below: []subcommand{
		{name: "list", arguments: "[conditions]", prepare: dlqList,
			examples: []string{"", "--status 5xx --newer 2h --limit 0", "--header tenant=acme* --json"},
			summary:  "the parked messages, one per line, from the head of the queue"},
		{name: "groups", arguments: "[conditions]", prepare: dlqGroups,
			examples: []string{"", "--reason max_retries --json"},
			summary:  "what fails in the same way, and how often, the largest group first"},
		{name: "show", arguments: "ID", most: 1, prepare: dlqShow,
			examples: []string{"order-4711", "3f2a90c41b7d6e58 --json"},
			summary:  "one message with everything in it, by its message id or its reference (REF in the list)"},
		{name: "redrive", arguments: "ID...|conditions|--all", most: -1, prepare: dlqRedrive,
			examples: []string{
				"--canary 3 --group 5b7c0d1e9f24", "--status 503 --rate 20/s",
				"--reset order-4711", "--to billing.inspect --text 4711",
			},
			summary: "back into the flow, one try each unless --reset; to another queue with --to"},
		{name: "discard", arguments: "ID...|conditions|--all", most: -1, prepare: dlqDiscard,
			examples: []string{"--dry-run --status 422", "--status 422 --older 7d --yes"},
			summary:  "delete messages permanently"},
		{name: "export", arguments: "[FILE|-] [conditions]", most: 1, prepare: dlqExport,
			examples: []string{"parked.jsonl", "--status 422 | gzip > parked.jsonl.gz"},
			summary: "copy messages to a file, or to standard output, as JSON Lines, which /publish:batch takes; " +
				"they stay parked"},
		{name: "import", arguments: "[FILE|-]", most: 1, prepare: dlqImport,
			examples: []string{"parked.jsonl", "--skip 1200 parked.jsonl"},
			summary:  "park what was exported, as it was"},
	},
}

// openOne returns the only queue there is, or the one of --subscription.
func (c *call) openOne() (*deadletter.Queue, error) {
	all, err := c.open()
	if err != nil {
		return nil, err
	}
	q, err := all.Only()
	if err != nil {
		err = c.misuse("%w", plainly(err))
	}
	return q, err
}

func (c *call) noSubscription(names []string) error {
	if len(names) == 0 {
		return c.misuse("no subscription %q: subscriptions have no names", c.subscription)
	}
	return c.misuse("no subscription %q; %s", c.subscription, suggestion(c.subscription, names, nil))
}

// open reads the configuration. The queues it returns connect when they are used.
func (c *call) open() (deadletter.Queues, error) {
	// A reader that goes away shows as an error of the write: what is unacked must be requeued before the end.
	signal.Ignore(syscall.SIGPIPE)
	cfg, err := loadConfig(c.environ)
	if err != nil {
		return nil, err
	}
	if c.as == "" {
		c.as = strconv.Itoa(os.Getuid())
		if u, err := user.Current(); err == nil {
			c.as = cmp.Or(u.Username, c.as)
		}
		c.as = app.OnHost(c.as)
	}
	c.log = app.CommandLog(cfg, c.stderr)
	all, err := app.DeadLetters(cfg, app.Build{Version: version, Commit: commit}, c.as)
	if err != nil {
		return nil, err
	}
	names := all.Subscriptions()
	c.named = len(names) > 0
	if all, err = all.Of(c.subscription); err != nil {
		return nil, c.noSubscription(names)
	}
	return all, nil
}

// note writes one line to standard error, unless that is to stay quiet.
func (c *call) note(format string, args ...any) {
	if !c.quiet {
		_, _ = fmt.Fprintln(c.stderr, terminal.Line(fmt.Sprintf(format, args...)))
	}
}

// stays is what to do when a command ended before its end and what it has not done yet is where it was.
const stays = "the rest is still in the queue: run the same command again"

func dlqRedrive(c *call) execution {
	r := deadletter.Redrive{CanaryTimeout: time.Minute}
	c.takesAction()
	c.takes(&r)
	c.duration(&r.CanaryTimeout, "canary-timeout", "`TIME` to wait for all verdicts together, beside the time a retry "+
		"waits (default 1m)", 1)
	return func(ctx context.Context) error {
		if err := c.choose(&r.Selection); err != nil {
			return err
		}
		q, err := c.openOne()
		if err != nil {
			return err
		}
		a := &action{name: "redrive", done: "redriven", rest: stays, dry: r.DryRun, limit: r.Limit}
		if a.to = string(r.To); a.to != "" {
			a.done = fmt.Sprintf("redriven to %q", a.to)
		}
		return c.act(ctx, q, a, func(report deadletter.Report) (deadletter.Progress, error) {
			return q.Redrive(ctx, r, report)
		})
	}
}

func dlqDiscard(c *call) execution {
	var d deadletter.Discard
	c.takesAction()
	c.takes(&d)
	yes := c.flags.Bool("yes", false, "do not ask; needed where there is no terminal to ask on")
	return func(ctx context.Context) error {
		if err := c.choose(&d.Selection); err != nil {
			return err
		}
		ask := !d.DryRun && !*yes
		_, readsTerminal := terminalWidth(c.stdin)
		_, showsTerminal := terminalWidth(c.stderr)
		if ask && (!readsTerminal || !showsTerminal) {
			return c.misuse("deletes messages permanently: say so with --yes, or see with --dry-run how many; sidecar dlq " +
				"export keeps a copy")
		}
		q, err := c.openOne()
		if err != nil {
			return err
		}
		a := &action{name: "discard", done: "discarded", rest: stays, dry: d.DryRun}
		if ask {
			p, err := q.Discard(ctx, deadletter.Discard{Selection: d.Selection, DryRun: true}, nil)
			if err != nil || p.Matched == 0 {
				return c.report(ctx, q, a, &p, err)
			}
			if err := c.confirm(ctx, q, &p); err != nil {
				return err
			}
			d.Limit = p.Matched // what has been parked since was not asked about
		}
		a.limit = d.Limit
		return c.act(ctx, q, a, func(report deadletter.Report) (deadletter.Progress, error) {
			return q.Discard(ctx, d, report)
		})
	}
}

// confirm wants the queue's name typed before anything is deleted. The name, because a yes is typed by habit.
func (c *call) confirm(ctx context.Context, q *deadletter.Queue, p *deadletter.Progress) error {
	_, _ = fmt.Fprintf(c.stderr, "%d of %s in %s would be discarded permanently. Type the queue's name to go on: ",
		p.Matched, number(p.Total, "message"), q.Name())
	typed, _ := bufio.NewReader(interruptible(ctx, c.stdin)).ReadString('\n')
	switch {
	case strings.TrimSpace(typed) == q.Name():
		return nil
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(c.stderr)
		return c.failed("%s: nothing was discarded", stoppedBySignal)
	}
	return c.failed("wrong queue name: nothing was discarded")
}
