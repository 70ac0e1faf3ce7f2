package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"sidecar/test/chaos/plan"
)

func (r *rig) startPublisher(ctx context.Context, self string) error {
	cmd := exec.CommandContext(ctx, self, "publish", "-dir", r.dir, "-url", r.urls(), "-rate", strconv.Itoa(r.o.rate))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	r.publisher, r.limits = cmd, in
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if n, err := strconv.ParseInt(s.Text(), 10, 64); err == nil {
				r.published.Store(n)
			}
		}
	}()
	return nil
}

// allow lets the publisher go on up to n messages.
func (r *rig) allow(n int) error {
	r.extending.Lock()
	defer r.extending.Unlock()
	return r.allowed(n, "")
}

// allowed is allow for those that hold extending; kind is that of the messages in between.
func (r *rig) allowed(n int, kind plan.Kind) error {
	if n <= r.limit {
		return nil
	}
	r.limit, r.run.Messages = n, max(r.run.Messages, n)
	if kind == "" { // else nothing but these
		r.keepPace(n - r.ordered)
	}
	_, err := fmt.Fprintln(r.limits, n, kind)
	return err
}

// settled waits until all that may be published has its result.
func (r *rig) settled(ctx context.Context) error {
	err := until(ctx, 10*time.Minute, "the sources", func() bool { return r.idle() && r.supplied() })
	for _, u := range r.supplies {
		err = errors.Join(err, u.failed())
	}
	return err
}
