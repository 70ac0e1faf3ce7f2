package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestCoresFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now   int
		share float64
		want  int
	}{
		{1, 0, 1}, {1, 0.6, 1}, {1, 0.74, 1}, {1, 0.75, 8}, {1, 3, 8},
		{8, 3, 8}, {8, 0.6, 8}, {8, 0.49, 1}, {8, 0, 1},
	} {
		if got := coresFor(tt.now, 8, tt.share); got != tt.want {
			t.Errorf("%d cores, %v of one used: %d, want %d", tt.now, tt.share, got, tt.want)
		}
	}
}

func TestCoresFollowTheLoad(t *testing.T) { //nolint:paralleltest // sets GOMAXPROCS
	before := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- (&App{shared: shared{log: slog.New(slog.DiscardHandler)}}).cores(ctx, 50*time.Millisecond)
	}()
	await := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); runtime.GOMAXPROCS(0) != n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d cores, want %d", runtime.GOMAXPROCS(0), n)
			}
		}
	}
	await(1)
	busy := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !isClosed(busy) { // computes all the time
		}
	}()
	await(2)
	close(busy)
	<-stopped
	await(1)
	cancel()
	if err := <-ended; err != nil || runtime.GOMAXPROCS(0) != 2 {
		t.Errorf("%v; %d cores in the end", err, runtime.GOMAXPROCS(0))
	}
}

// What a container may use of one core is not for us to raise.
func TestOneCoreStaysOne(t *testing.T) { //nolint:paralleltest // sets GOMAXPROCS
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	if err := (&App{}).cores(t.Context(), time.Second); err != nil || runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("%d cores, %v", runtime.GOMAXPROCS(0), err)
	}
}

// TestCPUWanted: where the kernel does not account for waiting, or says something odd, what was used has to do.
func TestCPUWanted(t *testing.T) {
	t.Parallel()
	thread := func(dir, name, schedstat string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if schedstat != "" {
			if err := os.WriteFile(filepath.Join(p, "schedstat"), []byte(schedstat), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	two := thread(thread(t.TempDir(), "1", "1000 500 7\n"), "2", "30 4 1\n")
	if got := cpuWanted(thread(two, "3", "")); got != 1534 { // the third has ended
		t.Errorf("%d ns wanted, want 1534", got)
	}
	self := strconv.Itoa(os.Getpid())
	for name, dir := range map[string]string{
		"no /proc":         filepath.Join(t.TempDir(), "missing"),
		"no accounting":    thread(t.TempDir(), self, ""),
		"another kernel's": thread(t.TempDir(), self, "lots\n"),
	} {
		if got, used := cpuWanted(dir), cpuUsed(); got <= 0 || got > used {
			t.Errorf("%s: %v wanted, %v used", name, got, used)
		}
	}
	if cpuWanted(tasks) < cpuUsed()/2 {
		t.Error("the threads of this process have run")
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
