package dlq

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
	"sidecar/internal/telemetry"
)

func newTestOperations() (*Operations, *apptest.Log) {
	log := new(apptest.Log)
	return newOperations(telemetry.NewLogger(log, "debug", "json")), log
}

// done is an action that does n messages and ends with err.
func done(n int, err error) action {
	return func(_ context.Context, report deadletter.Report) (deadletter.Progress, error) {
		report(deadletter.Progress{Done: n - 1})
		return deadletter.Progress{Done: n}, err
	}
}

func run(t *testing.T, o *Operations, kind string, do action) Operation {
	t.Helper()
	op, err := o.Begin(Operation{Kind: kind}, do)
	if err != nil {
		t.Fatal(err)
	}
	<-op.Done
	return o.Copy(op)
}

func TestOperationsAreRememberedForAWhile(t *testing.T) {
	t.Parallel()
	o, _ := newTestOperations()
	var first Operation
	for i := range keptOperations + 5 {
		op := run(t, o, "redrive", done(i+1, nil))
		if i == 0 {
			first = op
		}
		if op.State != opSucceeded || op.Progress.Done != i+1 || !httpguard.IsID(op.ID) || op.Ended.Before(op.Started) {
			t.Errorf("%+v", op)
		}
	}
	all, version := o.Since(0)
	if len(all) != keptOperations || all[0].Progress.Done != keptOperations+5 || o.Find(first.ID) != nil || o.Find(all[19].ID) == nil {
		t.Errorf("%d operations", len(all))
	}
	if news, _ := o.Since(version); len(news) != 0 {
		t.Errorf("%d changed", len(news))
	}
	op := run(t, o, "discard", done(1, nil))
	if news, _ := o.Since(version); len(news) != 1 || news[0].ID != op.ID {
		t.Errorf("%+v", news)
	}
}

func TestOperationsEnd(t *testing.T) {
	t.Parallel()
	o, log := newTestOperations()
	if op := run(t, o, "redrive", done(2, errors.New("boom\n<x>"))); op.State != opFailed || op.Error != "boom; <x>" || op.Progress.Done != 2 {
		t.Errorf("%+v", op)
	}
	until := func(ctx context.Context, _ deadletter.Report) (deadletter.Progress, error) {
		<-ctx.Done()
		return deadletter.Progress{Done: 3}, context.Cause(ctx)
	}
	op, _ := o.Begin(Operation{Kind: "discard"}, until)
	if _, err := o.Begin(Operation{Kind: "redrive"}, until); !errors.Is(err, deadletter.ErrInUse) || !strings.Contains(err.Error(), "discard "+op.ID) {
		t.Errorf("%v", err)
	}
	op.cancel(errCancelled)
	<-op.Done
	if got := o.Copy(op); got.State != opCancelled || got.Error != "cancelled" || got.Progress.Done != 3 {
		t.Errorf("%+v", got)
	}
	// One that fails for a reason of its own has failed, cancelled or not; one that has done its work has succeeded.
	for err, want := range map[error]string{errors.New("broken"): opFailed, nil: opSucceeded} {
		op, _ := o.Begin(Operation{}, func(ctx context.Context, _ deadletter.Report) (deadletter.Progress, error) {
			<-ctx.Done()
			return deadletter.Progress{}, err
		})
		op.cancel(errCancelled)
		<-op.Done
		if got := o.Copy(op); got.State != want {
			t.Errorf("%v: %+v", err, got)
		}
	}
	for _, want := range []string{`"state":"failed"`, `"state":"cancelled"`, `"state":"succeeded"`} {
		if len(log.Lines("control operation ended", want)) == 0 {
			t.Errorf("no %s in %s", want, log)
		}
	}
}

func TestAPanicEndsTheOperationAlone(t *testing.T) {
	t.Parallel()
	o, log := newTestOperations()
	op := run(t, o, "redrive", func(_ context.Context, report deadletter.Report) (deadletter.Progress, error) {
		report(deadletter.Progress{Done: 7})
		panic("boom")
	})
	if op.State != opFailed || op.Error != "internal error" || op.Progress.Done != 7 || !strings.Contains(log.String(), `"msg":"admin panic","panic":"boom"`) {
		t.Errorf("%+v %s", op, log)
	}
	if op := run(t, o, "redrive", done(1, nil)); op.State != opSucceeded {
		t.Errorf("the next: %+v", op)
	}
}

func TestStopWaitsForTheOperationAndNotForEver(t *testing.T) {
	t.Parallel()
	o, log := newTestOperations()
	release := make(chan struct{})
	op, _ := o.Begin(Operation{}, func(context.Context, deadletter.Report) (deadletter.Progress, error) {
		<-release
		return deadletter.Progress{}, nil
	})
	o.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Wait(ctx)
	if !strings.Contains(log.String(), "did not end in time") {
		t.Errorf("log: %s", log)
	}
	close(release)
	o.Wait(t.Context())
	<-op.Done
}
