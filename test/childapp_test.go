package test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

// appProcessEnv makes the test binary an app instead: its value is the address to listen on.
const appProcessEnv = "TEST_APP_PROCESS"

// appProcess plays the user's service in a process of its own, so that it can be stopped, killed and ended as the
// kubelet does it.
type appProcess struct {
	t    testing.TB
	addr string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	got   apptest.Tally // ids received, in all its lives
}

// withAppProcess replaces the scene's app by one in a process of its own.
func withAppProcess(t *testing.T, sc *scene) *appProcess {
	t.Helper()
	a := &appProcess{t: t, addr: freeAddr(t)}
	a.start()
	t.Cleanup(a.kill)
	sc.with("APP_URL", "http://"+a.addr+"/")
	return a
}

func (a *appProcess) start() {
	a.t.Helper()
	cmd, ended := exec.Command(os.Args[0]), make(chan struct{})
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), appProcessEnv+"="+a.addr), os.Stderr, dieWithTest()
	out := must.Get(cmd.StdoutPipe())(a.t)
	must.Do(a.t, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "listening" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		a.t.Fatalf("the app process says %q", lines.Text())
	}
	a.mu.Lock()
	a.cmd, a.ended = cmd, ended
	a.mu.Unlock()
	go func() {
		defer close(ended)
		for lines.Scan() {
			a.got.Add(lines.Text())
		}
		_ = cmd.Wait()
	}()
}

// life is the process that runs now or ran last, and what is closed when it has ended.
func (a *appProcess) life() (*os.Process, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd.Process, a.ended
}

func (a *appProcess) signal(s syscall.Signal) {
	a.t.Helper()
	app, _ := a.life()
	if err := app.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.t.Fatalf("signal %v to the app: %v", s, err)
	}
}

// kill is kill -9, also of a stopped process; twice does no harm.
func (a *appProcess) kill() {
	app, ended := a.life()
	_ = app.Kill()
	<-ended
}

// wait waits until the app has ended by itself.
func (a *appProcess) wait() { _, ended := a.life(); <-ended }

// runAppProcess is the other side: it prints the id of every message it receives and answers 200 after a few
// milliseconds, never to the first receipt of an id that begins with "hang". SIGTERM ends it as a good web server ends:
// nothing new is accepted, what has begun is answered.
func runAppProcess(addr string) int {
	l, err := apptest.ListenWithin(patience, addr)
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
	srv := apptest.New(func(c *apptest.Conn) {
		for {
			r, err := c.Next()
			if err != nil {
				return
			}
			say(r.ID)
			if strings.HasPrefix(r.ID, "hang") && r.Number("Amqp-Retry-Count") == 0 && r.Header.Get("Amqp-Redelivered") == "false" {
				<-c.Gone()
				return
			}
			time.Sleep(5 * time.Millisecond)
			c.Send(apptest.Status(200))
		}
	})
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	say("listening")
	srv.Serve(l)
	<-term
	srv.Shutdown(patience)
	return 0
}
