package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sidecar/test/chaos/judge"
	"sidecar/test/chaos/ledger"
)

// errMissed ends a self-test in which the judge missed a bug.
var errMissed = errors.New("the judge missed a bug")

// selfTest builds a sidecar for each deliberate bug, lets it run, and expects the judge to name an invariant of the
// mutant. The product itself runs with the same flags, and nothing may be found.
func selfTest(args []string) error {
	f := flag.NewFlagSet("chaos selftest", flag.ContinueOnError)
	root := f.String("root", ".", "the source tree")
	only := f.String("only", "", "a part of the names to try")
	more := f.Bool("further", false, "try other bugs than the usual ones")
	delayed := f.Bool("native", false, "try those of the native topology, which needs RabbitMQ 4.3")
	seed := f.Uint64("seed", 1, "of every run")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tried, missed := 0, 0
	controls := map[string]bool{}
	list := slices.Concat(mutants, outward, neighbours, gatherers)
	switch {
	case *more:
		list = further
	case *delayed:
		list = native
	}
	for i := range list {
		m := &list[i]
		if !strings.Contains(m.name, *only) {
			continue
		}
		tried++
		if flags := strings.Join(m.flags, " "); !controls[flags] {
			controls[flags] = true
			control := mutant{name: "has no bug", flags: m.flags, queues: m.queues}
			v, err := control.try(ctx, *root, *seed)
			if err != nil {
				return err
			}
			if !v.OK() {
				return fmt.Errorf("the sidecar itself does not pass %s: %s", flags, strings.Join(v.Broken(), ", "))
			}
			say("nothing: the sidecar itself, %s", flags)
		}
		v, err := m.try(ctx, *root, *seed)
		if err != nil {
			return err
		}
		broken := v.Broken()
		word := "caught"
		if !slices.ContainsFunc(m.caught, func(id string) bool { return slices.Contains(broken, id) }) {
			missed++
			word = "MISSED"
		}
		say("%s: a sidecar that %s; expected one of %s, broken: %s", word, m.name, strings.Join(m.caught, " "),
			strings.Join(broken, " "))
	}
	say("%d of %d deliberate bugs caught", tried-missed, tried)
	if missed > 0 || tried == 0 {
		return fmt.Errorf("%w: %d of %d", errMissed, missed, tried)
	}
	return nil
}

// try runs one mutant and returns what the judge says of it.
func (m *mutant) try(ctx context.Context, root string, seed uint64) (*judge.Verdict, error) {
	dir, err := os.MkdirTemp("", "sidecar-mutant-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := m.build(root, dir)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"run", "-outbox", "0", "-rollback", "0", "-publish", "0"}
	if m.queues {
		args = []string{"queues"}
	}
	args = append(args, "-dir", filepath.Join(dir, "run"), "-sidecar", binary, "-seed", fmt.Sprint(seed))
	args = append(append(args, "-patience", "40s"), m.flags...) // of which the last counts
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it takes its own processes along
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var v judge.Verdict
	if rerr := ledger.ReadJSON(filepath.Join(dir, "run"), ledger.ReportFile, &v); rerr != nil {
		return nil, fmt.Errorf("mutant %q was not judged: %w: %s", m.name, errors.Join(err, rerr), out)
	}
	return &v, nil
}
