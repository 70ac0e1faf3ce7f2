package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

// nowhere is an environment whose broker refuses at once: whatever gets past the command line exits 1 there.
var nowhere = append(slices.Clone(service), "SIDECAR_AMQP_URL=amqp://user:hunter2@127.0.0.1:1/")

func TestDLQCommandLine(t *testing.T) {
	t.Parallel()
	const away = "the broker cannot be reached"
	for _, c := range []struct {
		line   string // words are separated by one space each
		code   int
		stdout string // must contain
		stderr string // must contain
	}{
		{"dlq", 64, "", "a command is missing; there are list, groups, "},
		{"dlq --help", 0, "sidecar dlq redrive --canary 3", ""},
		{"dlq relay-all", 64, "", `no command "relay-all"; there are list, groups, show, redrive, discard, export, import`},
		{"dlq redirve", 64, "", `no command "redirve"; did you mean redrive? (sidecar dlq --help)`},
		{"dlq list --jsno", 64, "", "no flag --jsno; did you mean --json? (sidecar dlq list --help)"},
		{"dlq list -jsno", 64, "", "no flag -jsno; did you mean --json?"},
		{"dlq redirve --all", 64, "", `no command "redirve"; did you mean redrive?`},
		{"dlq list --x\n", 64, "", `no flag --x\n (sidecar dlq list --help)`},
		{"dlq list --reason max_retires", 64, "", `--reason "max_retires": is not a reason that a message is parked for; did you mean max_retries?`},
		{"dlq list --help", 0, "sidecar dlq list --status 5xx", ""},

		{"dlq list --limit 5 --scan=100 --status 503 --status=5xx -q", 1, "", away},
		{"dlq list x", 64, "", `unexpected argument "x"`},
		{"dlq list --limit -1", 64, "", `"-1" for flag --limit`},
		{"dlq list --limit", 64, "", "flag needs an argument: --limit"},
		{"dlq list --older 1h --older 2h", 64, "", `--older "2h": is given twice`},
		{"dlq list --header =x", 64, "", `--header "=x"`},
		{"dlq list --reason max_retries --routing-key a.* --correlation-id c* --text 4711 --header k=v --error x --group y --id z --older 7d --newer 9d", 1, "", away},

		{"dlq groups", 1, "", away},
		{"dlq groups --limit 1", 64, "", "--limit "},

		{"dlq show", 64, "", "give a message id or a reference"},
		{"dlq show a b", 64, "", `unexpected argument "b"`},
		{"dlq show m --max-body 1MiB", 1, "", away},
		{"dlq show m --max-body 64KB", 64, "", `"64KB" for flag --max-body`},
		{"dlq show m --status 503", 64, "", "--status "},
		{"dlq show -- --json", 1, "", away}, // an id that looks like a flag

		{"dlq redrive", 64, "", "say which messages: by id, by conditions, or with --all"},
		{"dlq redrive --limit 5", 64, "", "say which messages"},
		{"dlq redrive --all", 1, "", away},
		{"dlq redrive a b --reset c --rate 20/s --limit 5 --canary 3 --canary-timeout 90s --dry-run", 1, "", away},
		{"dlq redrive --all a", 64, "", "--all (over HTTP \"all\") and a condition"},
		{"dlq redrive --rate 0/s", 64, "", `"0/s" for flag --rate`},
		{"dlq redrive --canary -3", 64, "", `"-3" for flag --canary`},
		{"dlq redrive --all --canary 1001", 64, "", "canary 1001 is not between 0 and 1000"},
		{"dlq redrive --canary-timeout 0s", 64, "", `"0s" for flag --canary-timeout`},
		{"dlq redrive --all --to=", 64, "", "for flag --to: to must not be empty"},
		{"dlq redrive --all --to wms.queue.wms-cincout", 64, "", `to "wms.queue.wms-cincout" is a queue that this service or the broker uses itself`},
		{"dlq redrive --all --to audit --canary 3", 64, "", "cannot be combined with canary"},
		{"dlq redrive --all --to audit --reset", 1, "", away},
		{"dlq redrive --reset=maybe", 64, "", "maybe"},

		{"dlq discard", 64, "", "say which messages"},
		{"dlq discard --status 503", 64, "", "say so with --yes"},
		{"dlq discard --all --yes", 1, "", away},
		{"dlq discard m --dry-run", 1, "", away},

		{"dlq export", 1, "", away},
		{"dlq export - --json", 64, "", "--json needs a file"},
		{"dlq export  --status 503", 64, "", "the file has no name"},
		{"dlq export /nowhere/at/all", 1, "", "/nowhere/at/all"},
		{"dlq export /", 1, "", "not a regular file"},
		{"dlq export main_test.go", 1, "", "--force to replace it"},
		{"dlq import", 1, "", away},
		{"dlq import - --skip 3", 1, "", away},
		{"dlq import --skip x", 64, "", `"x" for flag --skip`},
		{"dlq import /nowhere", 1, "", "/nowhere"},
	} {
		t.Run(c.line, func(t *testing.T) {
			args := strings.Split(c.line, " ")
			stderr := wantCall(t, nowhere, args, c.code, c.stdout, c.stderr)
			if c.code != 0 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("not one line: %q", stderr)
			}
		})
	}
	if left, _ := os.ReadDir("."); slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".part") }) {
		t.Error("an unfinished file was left behind")
	}
}

func TestDLQConfiguration(t *testing.T) {
	t.Parallel()
	none := append(service, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled")
	for _, command := range []string{"dlq list", "dlq redrive --all", "dlq export", "dlq import"} {
		wantCall(t, nil, strings.Fields(command), 64, "", "SIDECAR_SERVICE")
		wantCall(t, none, strings.Fields(command), 64, "", "no dead-letter queue")
	}
}

// TestDLQFailureAsJSON: scripts get the reason on standard output too, people on standard error.
func TestDLQFailureAsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := callSidecar(t, nowhere, "dlq", "redrive", "--all", "--json")
	if code != 1 || !strings.Contains(stdout, `"action":"redrive"`) || !strings.Contains(stdout, `"error":"dlq redrive: the broker cannot be reached`) || stderr == "" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// newTestCall is one use of a command below `sidecar dlq`.
func newTestCall(in invocation, name string) *call {
	cmd, dlq, root := &cobra.Command{Use: name}, &cobra.Command{Use: "dlq"}, &cobra.Command{Use: "sidecar"}
	root.AddCommand(dlq)
	dlq.AddCommand(cmd)
	return &call{invocation: in, cmd: cmd, flags: cmd.Flags(), out: newOutput(in.stdout)}
}

// anyQueue is a queue that no client connects to.
func anyQueue(t *testing.T) *deadletter.Queue {
	t.Helper()
	return must.Get(newTestCall(invocation{environ: nowhere}, "x").openOne())(t)
}

// TestExplain: every way an operation can end is one sentence that says what to do.
func TestExplain(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for want, c := range map[string]struct {
		ctx context.Context
		err error
	}{
		"dlq redrive: stopped by a signal: 5 redriven":                     {stopped, errors.New("cut")},
		"dlq redrive: the dead-letter queue does not exist; check SIDECAR": {t.Context(), deadletter.ErrMissing},
		"declares it in mode declare, if the broker allows it; sidecar check says what it refuses": {
			t.Context(), fmt.Errorf("%w: 404", deadletter.ErrMissing),
		},
		"dlq redrive: the dead-letter queue is in use; try again": {t.Context(), deadletter.ErrInUse},
		"sidecar dlq list prints the references":                  {t.Context(), deadletter.ErrNotFound},
		"dlq redrive: the canary failed":                          {t.Context(), deadletter.ErrCanary},
		`dlq redrive: stopped; no\x1b way: 5 redriven`:            {t.Context(), errors.Join(deadletter.ErrStopped, errors.New("no\x1b way"))},
		"the broker cannot be reached (dial: refused): 5":         {t.Context(), &net.OpError{Op: "dial", Err: errors.New("refused")}},
		"usage: rate 7 is not one (sidecar dlq redrive --help)":   {t.Context(), fmt.Errorf("%w: rate 7 is not one", deadletter.ErrInvalid)},
	} {
		err := newTestCall(invocation{}, "redrive").explainError(c.ctx, c.err, "5 redriven")
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%v: %v, want %s", c.err, err, want)
		}
		if usage := strings.HasPrefix(want, "usage"); errors.Is(err, errUsage) != usage {
			t.Errorf("%v became %#v", c.err, err)
		}
	}
	if err := newTestCall(invocation{}, "x").explainError(t.Context(), nil, ""); err != nil {
		t.Error(err)
	}
}
