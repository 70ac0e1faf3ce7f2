package test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestStopsUnderLoad: replicas get SIGTERM in the middle of the work. One attempt that was counted would park its message
// here, and one that was interrupted would come twice.
func TestStopsUnderLoad(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "4", "PREFETCH", "12", "MAX_RETRIES", "0").seed()
	sc.app.otherwise(func(*delivery) answer { time.Sleep(10 * time.Millisecond); return status(200) })
	const replicas, rounds, batch = 3, 2, 300
	ids, binary := numbered("m", rounds*batch), shipped(t)
	for round := range rounds {
		before := sc.app.total()
		sc.send(ids[round*batch : (round+1)*batch]...)
		var running []*sidecar
		for range replicas {
			running = append(running, launchBinary(t, binary, sc.env).listening())
		}
		eventually(t, "work under way", func() bool { return sc.app.total() >= before+100 })
		for _, s := range running {
			s.signal(syscall.SIGTERM)
		}
		for _, s := range running {
			if code := s.exitCode(); code != 0 {
				t.Errorf("round %d: exit code %d, want 0", round, code)
			}
		}
	}
	if left := sc.ready(sc.queue()); left == 0 {
		t.Error("all was done before the last stop: this proves too little")
	}
	sc.app.otherwise(func(*delivery) answer { return status(200) })
	s := sc.run()
	sc.app.awaitAll(ids...)
	sc.settledAll(s, 0)
	checkUncounted(t, sc, ids)
}

// TestOneCore: the sidecar uses one core, and as many as its environment says.
func TestOneCore(t *testing.T) {
	t.Parallel()
	for wanted, cores := range map[string]float64{"": 1, "3": 3} {
		sc := newScene(t).seed()
		sc.env["GOMAXPROCS"] = wanted // empty counts as unset
		if n := sc.run().metric("go_sched_gomaxprocs_threads"); n != cores {
			t.Errorf("GOMAXPROCS %q: %v cores, want %v", wanted, n, cores)
		}
	}
}

// TestThrottledToAFifthOfACore: as a container at its CPU limit runs, 20 ms of every 100. Heartbeats must not wait
// behind the work.
func TestThrottledToAFifthOfACore(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).Heartbeat(2)
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	s := sc.run()
	ids := numbered("m", 200)
	sc.send(ids...)
	free := steadily(t, 20*time.Millisecond, func() {
		_ = s.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(80 * time.Millisecond)
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
	})
	sc.app.awaitAll(ids...)
	time.Sleep(5 * time.Second) // idle and throttled: only heartbeats, and more than two of them
	free()
	if n := s.metric("sidecar_amqp_reconnects_total"); n != 0 {
		t.Errorf("%v sessions were lost for the lack of CPU", n)
	}
	sc.settledAll(s, 0)
	checkUncounted(t, sc, ids)
}

// withoutFiles is for bash: the process that it becomes can write to no file, but its output arrives, a little later.
const withoutFiles = "exec > >(exec cat) 2>&1; ulimit -f 0 && "

// TestWritesNoFile: a read-only root file system is enough. With a limit of zero bytes per file every write to one
// fails and, on most systems, kills the writer.
func TestWritesNoFile(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1").seed()
	sc.app.on("bad", status(500))
	s := launchBinary(t, "bash", sc.env, "-c", withoutFiles+"cd / && exec "+program).listening().awaitReady()
	sc.send("bad", "good")
	s.awaitOutcome("good", "ack")
	s.awaitOutcome("bad", "park")
	sc.settledAll(s, 1)
}

// TestLogCannotBeWritten: the process that read the log died, which by default would end a Go program at its next line,
// or the disk is full.
func TestLogCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (*os.File, error){
		"reader gone": func() (*os.File, error) {
			r, w, err := os.Pipe()
			if err == nil {
				_ = r.Close()
			}
			return w, err
		},
		"full disk": func() (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).seed()
			w := must.Get(open())(t)
			cmd := exec.Command(program)
			cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = environ(sc.env), w, w, dieWithTest()
			must.Do(t, cmd.Start())
			_ = w.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			ids := numbered("m", 20)
			sc.send(ids...)
			sc.app.awaitAll(ids...)
			must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
			if err := <-ended; err != nil {
				t.Errorf("the sidecar ended with %v", err)
			}
			if n := sc.ready(sc.queue()) + sc.ready(sc.dlq()); n != 0 {
				t.Errorf("%d messages left in the queues", n)
			}
		})
	}
}
