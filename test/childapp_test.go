package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// appProcessEnv makes the test binary an app instead: its value is the address to listen on.
const appProcessEnv = "TEST_APP_PROCESS"

// appProcess plays the user's service in a process of its own, so that it can be stopped, killed and told to end as the
// kubelet does it.
type appProcess struct {
	t    testing.TB
	addr string
	cmd  *exec.Cmd

	mu  sync.Mutex
	got map[string]int
}

func newAppProcess(t testing.TB) *appProcess {
	t.Helper()
	a := &appProcess{t: t, addr: freeAddr(t), got: map[string]int{}}
	a.start()
	t.Cleanup(a.kill)
	return a
}

func (a *appProcess) url() string { return "http://" + a.addr + "/" }

func (a *appProcess) start() {
	a.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		a.t.Fatal(err)
	}
	a.cmd = exec.Command(exe)
	a.cmd.Env, a.cmd.Stderr, a.cmd.SysProcAttr = append(os.Environ(), appProcessEnv+"="+a.addr), os.Stderr, dieWithTest()
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "listening" {
		a.t.Fatalf("the app process says %q", lines.Text())
	}
	go func() {
		for lines.Scan() {
			a.mu.Lock()
			a.got[lines.Text()]++
			a.mu.Unlock()
		}
	}()
}

// receipts counts what the app has received of one id, in all its lives.
func (a *appProcess) receipts(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[id]
}

func (a *appProcess) total() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.got {
		n += c
	}
	return n
}

func (a *appProcess) signal(s syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.t.Fatalf("signal %v to the app: %v", s, err)
	}
}

// kill is kill -9, also of a stopped process; twice does no harm.
func (a *appProcess) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// wait waits until the app has ended by itself.
func (a *appProcess) wait() { _ = a.cmd.Wait() }

// runAppProcess is the other side: it prints the id of every message it receives and answers 200 after a few
// milliseconds, never to the first receipt of an id that begins with "hang". SIGTERM ends it as a good web server ends:
// nothing new is accepted, what has begun is answered.
func runAppProcess(addr string) int {
	l, err := listenWithin(patience, addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var out sync.Mutex
	say := func(line string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(line)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Amqp-Message-Id")
		say(id)
		if strings.HasPrefix(id, "hang") && r.Header.Get("Amqp-Retry-Count") == "0" && r.Header.Get("Amqp-Redelivered") == "false" {
			<-r.Context().Done()
			return
		}
		time.Sleep(5 * time.Millisecond)
		w.WriteHeader(http.StatusOK)
	})}
	ended := make(chan struct{})
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		_ = srv.Shutdown(context.Background())
		close(ended)
	}()
	say("listening")
	_ = srv.Serve(l)
	<-ended
	return 0
}
