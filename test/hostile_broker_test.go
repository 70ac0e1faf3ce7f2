package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// What the sidecar may cost while its broker is hostile.
const (
	hostileMemory = "32MiB"         // SIDECAR_MEMORY
	hostileRSS    = 128 << 10       // KiB, of which 20 MiB are the program itself; the collector may let the heap grow to twice its size
	hostileStop   = 9 * time.Second // less than a call that gets no answer takes; the contract allows three more than the grace of 1s
	hostileWatch  = 700 * time.Millisecond
)

// TestHostileBroker: whatever its peer sends, the sidecar does not panic, stays within its memory, does not compute
// without work, answers its probes, and ends in time on SIGTERM.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	floods := make(chan struct{}, 3) // each keeps a core busy
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if m.flood {
				floods <- struct{}{}
				defer func() { <-floods }()
			}
			judge(t, m)
		})
	}
}

func judge(t *testing.T, m mode) {
	p, app := newHostilePeer(t, m), newApp(t)
	s := start(t, map[string]string{
		"SIDECAR_SERVICE": "hostile-svc", "SIDECAR_AMQP_URL": "amqp://guest:guest@" + p.addr + "/", "SIDECAR_APP_URL": app.url(),
		"SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0", "SIDECAR_PUBLISH_ADDR": "127.0.0.1:0",
		"SIDECAR_PUBLISH_TIMEOUT": "1s", "SIDECAR_SHUTDOWN_GRACE": "1s", "SIDECAR_MEMORY": hostileMemory, "GOMEMLIMIT": "64MiB",
	})
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	defer steadily(t, 50*time.Millisecond, func() { // the answers are of no interest
		if answer, err := client.Post("http://"+s.endpoint+"/publish/default/k", "text/plain", strings.NewReader("x")); err == nil {
			_ = answer.Body.Close()
		}
	})()
	if m.on != closeConnection && m.on != basicCancel {
		awaitMisbehaviour(t, p)
	}
	if m.name == wellBehaved {
		s.awaitReady().published("/publish/default/k", "x", nil)
	}
	time.Sleep(hostileWatch) // the damage is done meanwhile
	eventually(t, "GET /livez is 200", func() bool { status, _ := s.get(s.admin, "/livez"); return status == http.StatusOK })
	if !m.flood {
		eventually(t, "a sidecar that computes for less than a quarter of the time", func() bool {
			before := s.cpu()
			time.Sleep(hostileWatch / 3)
			return s.cpu()-before < hostileWatch/12
		})
	}
	if kib := peakRSS(t, s.cmd.Process.Pid); kib > hostileRSS {
		t.Errorf("%d MiB at its peak, the limit is %d", kib>>10, hostileRSS>>10)
	}
	s.signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	case <-time.After(hostileStop):
		t.Errorf("still there %v after SIGTERM", hostileStop)
	}
	awaitMisbehaviour(t, p)
}

func awaitMisbehaviour(t *testing.T, p *hostilePeer) {
	t.Helper()
	select {
	case <-p.reached:
	case <-time.After(patience):
		t.Fatal("the sidecar never got as far as the misbehaviour")
	}
}

// cpu is the time that the process has computed for.
func (s *sidecar) cpu() time.Duration {
	s.t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)))(s.t)
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		s.t.Fatalf("%d fields in stat", len(fields))
	}
	var user, system time.Duration
	must.Get(fmt.Sscan(fields[11]+" "+fields[12], &user, &system))(s.t)
	return (user + system) * 10 * time.Millisecond // ticks of 1/100 s
}
