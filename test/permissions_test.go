package test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// account is a broker user with the password canary-password; its rights are all until the test sets others.
type account struct {
	t    testing.TB
	name string
}

func newAccount(t testing.TB) account {
	t.Helper()
	return account{t, brokertest.User(t, "canary-password")}
}

func (a account) may(configure, write, read string) {
	a.t.Helper()
	brokertest.Ctl(a.t, "set_permissions", a.name, configure, write, read)
}

// least gives the user what `sidecar plan --format permissions` asks for.
func (a account) least(env map[string]string) {
	a.t.Helper()
	r := command(a.t, env, "plan", "--format", "permissions")
	rights := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		if f := strings.Fields(line); len(f) == 2 {
			rights[f[0]] = f[1]
		}
	}
	if r.code != 0 || len(rights) != 3 {
		a.t.Fatalf("exit %d: %s", r.code, r.all())
	}
	if !strings.Contains(r.stdout, "rabbitmqctl set_permissions -p "+brokertest.VhostName(a.t)+" USER '"+rights["configure"]+"' '"+rights["write"]+"' '"+rights["read"]+"'") {
		a.t.Errorf("no command to copy:\n%s", r.stdout)
	}
	a.may(rights["configure"], rights["write"], rights["read"])
}

// TestLeastPrivilege runs the sidecar as a user who may do exactly what the plan says, first declaring, then only
// verifying, then not even checking; messages are retried and parked in each, and moved back by commands.
// declare TestPermissionsAreEnough has all topologies.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	user := newAccount(t)
	sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password", "MAX_RETRIES", "2")
	sc.app.on("late", status(500), status(200))
	sc.app.on("bad", status(500))
	for _, mode := range []string{"declare", "verify", "none"} {
		sc.with("TOPOLOGY_MODE", mode)
		user.least(sc.env)
		s := sc.run()
		if r := command(t, sc.env, "check"); r.code != 0 {
			t.Errorf("%s: check exits %d:\n%s", mode, r.code, r.all())
		}
		sc.send("late", "bad")
		if d := sc.take(sc.dlq(), 1)[0]; d.MessageId != "bad" {
			t.Errorf("%s: parked %q", mode, d.MessageId)
		}
		s.awaitOutcome("late", "ack")
		if mode != "none" { // then the plan asks for no right to read the dead-letter queue
			sc.leastPrivilegeOfCommands()
		}
		if s.log.mentions("access_refused") {
			t.Errorf("%s: something was refused", mode)
		}
		s.stop()
	}
	user.may("^$", "^$", "^$")
	if r := sc.cli(1, "list"); !strings.Contains(r.stderr, "403") || strings.Contains(r.all(), "canary-password") {
		t.Errorf("%q", r.stderr)
	}
}

// leastPrivilegeOfCommands parks messages, takes one out and puts it back, and moves all of them to the app.
func (sc *scene) leastPrivilegeOfCommands() {
	sc.t.Helper()
	sc.parkIDs(503, "a", "b", "c")
	file := filepath.Join(sc.t.TempDir(), "f")
	sc.cli(0, "export", file, "--id", "c")
	sc.acted("discard", "c", "--yes")
	sc.acted("import", file)
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c"}) {
		sc.t.Errorf("%q", got)
	}
	if d := sc.acted("redrive", "--all", "--canary", "1"); d.Done != 3 || d.Canary.Good != 1 {
		sc.t.Errorf("%+v", d)
	}
}
