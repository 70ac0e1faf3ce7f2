package test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// sidecar is one running process of the binary under test.
type sidecar struct {
	t              testing.TB
	cmd            *exec.Cmd
	log            *output
	exited         chan struct{}
	admin, control string // host:port as bound; set once the process has logged them
	endpoint       string // the same of the listener that the app publishes to; empty without one
}

// launch starts `sidecar args…` with exactly that environment and does not wait for anything.
func launch(t testing.TB, env map[string]string, args ...string) *sidecar {
	t.Helper()
	return launchBinary(t, program, env, args...)
}

func launchBinary(t testing.TB, binary string, env map[string]string, args ...string) *sidecar {
	t.Helper()
	s := &sidecar{t: t, log: newOutput(t), exited: make(chan struct{})}
	s.cmd = exec.Command(binary, args...)
	s.cmd.Env, s.cmd.SysProcAttr = environ(env), dieWithTest()
	s.log.of(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start the sidecar: %v", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(s.cleanup)
	return s
}

// start runs the sidecar and waits until it serves.
func start(t testing.TB, env map[string]string) *sidecar {
	t.Helper()
	return launch(t, env).listening()
}

// listening waits for the line that names the bound addresses.
func (s *sidecar) listening() *sidecar {
	t := s.t
	t.Helper()
	eventually(t, "a log line `listening` with admin and control", func() bool {
		if s.ended() {
			t.Fatalf("the sidecar ended with %d", s.cmd.ProcessState.ExitCode())
		}
		for _, e := range s.log.find(func(e entry) bool { return e.is("listening") }) {
			s.admin, s.control, s.endpoint = e.text("admin"), e.text("control"), e.text("publish")
		}
		return s.admin != "" && s.control != ""
	})
	return s
}

func environ(env map[string]string) []string {
	list := []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

func (s *sidecar) cleanup() {
	if !s.ended() {
		s.kill()
	}
	out := s.log.String()
	if strings.Contains(out, "panic:") || strings.Contains(out, "DATA RACE") || strings.Contains(out, "fatal error:") {
		s.t.Errorf("the sidecar crashed or raced:\n%s", s.log.tail(80))
	} else if s.t.Failed() {
		s.t.Logf("the sidecar's last lines:\n%s", s.log.tail(60))
	}
}

func (s *sidecar) ended() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// kill is kill -9: no goodbye to the broker.
func (s *sidecar) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

func (s *sidecar) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatalf("signal %v: %v", sig, err)
	}
}

// exitCode waits for the end.
func (s *sidecar) exitCode() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("the sidecar did not end within %v", patience)
	}
	return s.cmd.ProcessState.ExitCode()
}

// stop is a Kubernetes stop: SIGTERM, and it must end with 0.
func (s *sidecar) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 0 {
		s.t.Errorf("exit code after SIGTERM: %d, want 0", code)
	}
}

func (s *sidecar) ready() bool {
	status, _ := s.get(s.admin, "/readyz")
	return status == http.StatusOK
}

// awaitReady waits for /readyz, and for that of the publish endpoint if there is one: its connection is its own and no
// condition of the first, so it may be made later.
func (s *sidecar) awaitReady() *sidecar {
	s.t.Helper()
	eventually(s.t, "GET /readyz is 200", func() bool {
		if s.ended() {
			s.t.Fatalf("the sidecar ended with %d", s.cmd.ProcessState.ExitCode())
		}
		if s.endpoint != "" {
			if status, _ := s.get(s.endpoint, "/readyz"); status != http.StatusOK {
				return false
			}
		}
		return s.ready()
	})
	return s
}

// patience is how long a test waits for something that must happen. It bounds a failing run and is no claim about
// speed: a loaded machine may take nearly all of it.
const patience = time.Minute

// eventually waits until cond holds and fails the test when it does not within patience.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	brokertest.Eventually(t, patience, what, cond)
}

// stays watches for a while that cond goes on holding: for things that must not happen.
func stays(t testing.TB, watch time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !cond() {
			t.Fatalf("did not stay: %s", what)
		}
	}
}

// steadily calls f again and again, with such a pause before each, until finish is called or the test ends.
func steadily(t testing.TB, pause time.Duration, f func()) (finish func()) {
	t.Helper()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(pause):
				f()
			}
		}
	})
	finish = sync.OnceFunc(func() { close(stop); work.Wait() })
	t.Cleanup(finish)
	return finish
}
