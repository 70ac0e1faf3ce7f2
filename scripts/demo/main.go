// Command demo shows what the sidecar does with messages whose app succeeds, fails for a while, is too early, fails for
// too long or is away, how a parked message returns, and the outcomes of messages that are written into a database or
// published over HTTP. It prints every message's journey as it happens, and fails if one of them is not as promised: it
// is not a test of the sidecar, but it does not show anything that is not true either.
//
// It is started by scripts/demo.sh, which provides broker, database, binary, and the runtimes of the examples.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// What the sidecar is configured with. The delays are short so that eleven attempts fit into a few seconds.
const (
	service    = "demo-orders"
	mainQueue  = "demo.queue.demo-orders"
	retryQueue = "demo.retry-queue.demo-orders"
	dlq        = "demo.dlq.demo-orders"
	exchange   = "demo.main-exchange"
	retryDelay = 400 * time.Millisecond
	maxRetries = 10

	// patience bounds every wait. It is far above what a loaded machine needs: nothing here measures time.
	patience = 60 * time.Second
)

type options struct {
	amqpURL, sidecar, app, dir string
	postgres                   string // URL of the database
	python, node, golang       string // of examples/outbox, as scripts/examples.sh has set them up; "" without that one
	keep                       bool
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.amqpURL, "amqp", "", "URL of the broker")
	flags.StringVar(&o.sidecar, "sidecar", "bin/sidecar", "the sidecar's binary")
	flags.StringVar(&o.app, "app", "examples/app-python/app.py", "the app, a Python script")
	flags.StringVar(&o.dir, "dir", "", "directory for logs and process ids")
	flags.StringVar(&o.postgres, "postgres", "", "URL of the database")
	flags.StringVar(&o.python, "python", "", "a Python with psycopg")
	flags.StringVar(&o.node, "node", "", "directory with the example for Node and its packages")
	flags.StringVar(&o.golang, "go", "", "the example in Go, built")
	flags.BoolVar(&o.keep, "keep", false, "leave app and sidecar running")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := newScreen(out)

	app, err := startApp(ctx, o, "app", "0")
	if err != nil {
		return err
	}
	sidecar, err := startSidecar(ctx, o, app.address)
	if err != nil {
		return err
	}
	st := &stage{screen: s, options: o, app: app, sidecar: sidecar}
	if err := st.play(ctx); err != nil {
		s.logs(st.app, sidecar)
		return errors.Join(err, st.stop())
	}
	if o.keep {
		s.kept(st)
		return nil
	}
	return st.stop()
}
