package declare

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestPermissionsAreEnough: a user with exactly what Permissions says can do all that its mode needs.
func TestPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	brokertest.URL(t) // one virtual host for all: no two plans share a name
	for name, p := range variants(t) {
		if name == "quorum tiers" { // the names are what counts
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := oneUser(t)
			for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify, topology.ModeNone} {
				u := with(p.Permissions(mode))
				fits(t, u, p, mode)
				if f, err := Preflight(context.Background(), session(t, u), p, mode); err != nil || f != nil {
					t.Errorf("%s: %v, %v", mode, f, err)
				}
				travels(t, u, p)
				if mode == topology.ModeNone {
					continue
				}
				if m := must.Get(Measure(t.Context(), session(t, u), p))(t); m.Missing != nil || len(m.Depths) != len(p.Queues) {
					t.Errorf("%s: %+v", mode, m)
				}
			}
		})
	}
}

const anything, nothing = ".*", "^$" // what a right is for

func may(configure, write, read string) topology.Permissions {
	return topology.Permissions{Configure: configure, Write: write, Read: read}
}

// TestPermissionsMissing takes one right away at a time. The finding names the right, the object, and the line that
// helps.
func TestPermissionsMissing(t *testing.T) {
	t.Parallel()
	_, there := declared(t, topology.Options{Service: "wms-cincout"})
	absent := build(t, topology.Options{Service: "abs-ent"})
	for _, c := range []struct {
		name        string
		p           *topology.Plan
		mode        topology.Mode
		permissions topology.Permissions
		want        []string // of the findings: object, right and resource
		on43        []string // more of them from RabbitMQ 4.3
	}{
		{"nothing, objects there, declare", there, topology.ModeDeclare, may(nothing, nothing, nothing), []string{
			`exchange "wms.retry-exchange.wms-cincout": configure on "wms.retry-exchange.wms-cincout"`,
			`queue "wms.dlq.wms-cincout": configure on "wms.dlq.wms-cincout"`,
			`queue "wms.retry-queue.wms-cincout": configure and read on "wms.retry-queue.wms-cincout"`,
			`queue "wms.queue.wms-cincout": configure and read on "wms.queue.wms-cincout"`,
			`binding of queue "wms.queue.wms-cincout"`, `binding of queue "wms.retry-queue.wms-cincout"`,
		}, []string{`exchange "wms.main-exchange": configure on "wms.main-exchange"`}},
		{"nothing, objects there, verify", there, topology.ModeVerify, may(nothing, nothing, nothing), nil, []string{
			`exchange "wms.main-exchange": read on`, `exchange "wms.retry-exchange.wms-cincout": read on`,
			`queue "wms.dlq.wms-cincout": read on`, `queue "wms.retry-queue.wms-cincout": read on`, `queue "wms.queue.wms-cincout": read on`,
		}},
		{"the shared exchange is not ours to declare", there, topology.ModeDeclare, may(`^wms\.(queue|retry-queue|dlq|retry-exchange)\.wms-cincout$`, anything, anything), nil, nil},
		{"no read", there, topology.ModeDeclare, may(anything, anything, nothing), []string{
			`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": read on "wms.main-exchange"`,
			`binding of queue "wms.retry-queue.wms-cincout" to exchange "wms.retry-exchange.wms-cincout" with key "retry": read on "wms.retry-exchange.wms-cincout"`,
		}, nil},
		{"no write", there, topology.ModeDeclare, may(anything, nothing, anything), []string{
			`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": write on "wms.queue.wms-cincout"`,
			`binding of queue "wms.retry-queue.wms-cincout"`,
		}, nil},
		{"no write, objects absent", absent, topology.ModeDeclare, may(anything, nothing, anything), []string{
			`queue "abs.retry-queue.abs-ent": write on "amq.default"`, `queue "abs.queue.abs-ent": write on "abs.retry-exchange.abs-ent"`,
			`binding of queue "abs.queue.abs-ent"`, `binding of queue "abs.retry-queue.abs-ent"`,
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := oneUser(t)(c.permissions)
			got := ensure(t, u, c.p, c.mode)
			want := c.want
			if atLeast43(t) {
				want = append(want, c.on43...)
			}
			lacks(t, got, want)
			for _, f := range got {
				if !strings.Contains(f.Fix, "rabbitmqctl set_permissions -p "+brokertest.VhostName(t)) || !strings.Contains(f.Fix, c.p.Permissions(c.mode).Read) {
					t.Errorf("no help in %q", f.Fix)
				}
			}
		})
	}
}

// lacks fails unless the findings are these: object, right and resource. From 4.0 the broker names the right itself,
// which is one where an older one leaves two possible.
func lacks(t testing.TB, got []Finding, want []string) {
	t.Helper()
	if len(got) > 1 || len(got) != min(len(want), 1) {
		t.Fatalf("%d findings, want all in one: %v", len(got), got)
	}
	if len(want) == 0 {
		return
	}
	f := got[0]
	if f.Problem != ProblemPermission || strings.Count(f.Object, `, `)+1 != len(want) {
		t.Errorf("%s (%s), want %d objects", f.Object, f.Problem, len(want))
	}
	for _, w := range want {
		object, right, whole := strings.Cut(w, `": `)
		right = strings.Replace(right, " on", " permission on", 1)
		if !strings.Contains(f.Object, object) || whole && !strings.Contains(f.Wanted, right) &&
			!strings.Contains(f.Wanted, strings.Replace(right, "configure and read", "configure", 1)) {
			t.Errorf("%s: %s does not hold %s", f.Object, f.Wanted, w)
		}
	}
}

func atLeast43(t testing.TB) bool {
	v := brokertest.Version(t)
	return !strings.HasPrefix(v, "3.") && v >= "4.3"
}

// TestPreflight takes one right at a time, before and after the objects are there, and leaves nothing behind.
func TestPreflight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		mode        topology.Mode
		permissions topology.Permissions
		want        []string // of the findings: object, right and resource
		absent      []string // more of them while the objects are not there
	}{
		{"everything", topology.ModeDeclare, may(anything, anything, anything), nil, nil},
		{"no configure", topology.ModeDeclare, may(nothing, anything, anything), []string{
			`declaring exchange "wms.retry-exchange.wms-cincout": configure on "wms.retry-exchange.wms-cincout"`,
			`declaring queue "wms.dlq.wms-cincout": configure on "wms.dlq.wms-cincout"`,
			`declaring queue "wms.retry-queue.wms-cincout": configure and read on "wms.retry-queue.wms-cincout"`,
			`declaring queue "wms.queue.wms-cincout": configure and read on "wms.queue.wms-cincout"`,
		}, []string{`declaring exchange "wms.main-exchange": configure on "wms.main-exchange"`}},
		{"no configure, which verifying does not need", topology.ModeVerify, may(nothing, anything, anything), nil, nil},
		{"no read", topology.ModeVerify, may(anything, anything, nothing),
			[]string{`consuming from queue "wms.queue.wms-cincout": read on "wms.queue.wms-cincout"`}, nil},
		{"no read of the main exchange", topology.ModeDeclare, may(anything, anything, `^wms\.[^m].*`),
			[]string{`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": read on "wms.main-exchange"`}, nil},
		{"no write to the default exchange", topology.ModeVerify, may(anything, `^wms.*`, anything),
			[]string{`publishing to exchange "amq.default": write on "amq.default"`}, nil},
		{"no write to the queue", topology.ModeDeclare, may(anything, `^(amq\.default|wms\.retry-.*)$`, anything),
			[]string{`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": write on "wms.queue.wms-cincout"`}, nil},
		{"no write at all", topology.ModeNone, may(anything, nothing, anything), []string{
			`publishing to exchange "amq.default": write on "amq.default"`,
			`publishing to exchange "wms.retry-exchange.wms-cincout": write on "wms.retry-exchange.wms-cincout"`,
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, p := brokertest.URL(t), build(t, topology.Options{Service: "wms-cincout"})
			u := oneUser(t)(c.permissions)
			preflight := func(want []string) {
				t.Helper()
				got, err := Preflight(context.Background(), session(t, u), p, c.mode)
				if err != nil {
					t.Error(err)
				}
				lacks(t, got, want)
			}
			preflight(slices.Concat(c.want, c.absent))
			for _, q := range p.Queues {
				if brokertest.Ready(t, url, q.Name) >= 0 {
					t.Errorf("%s was declared", q.Name)
				}
			}
			fits(t, url, p, topology.ModeDeclare)
			preflight(c.want)
			for _, q := range p.Queues {
				if n := brokertest.Ready(t, url, q.Name); n != 0 {
					t.Errorf("%d messages in %s", n, q.Name)
				}
			}
		})
	}
}
