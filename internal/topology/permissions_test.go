package topology

import (
	"context"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// TestPermissionsAreEnough: a user with exactly what Permissions says can do all that its mode needs.
func TestPermissionsAreEnough(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout"})
	declarer := user(t, url, p.Permissions(ModeDeclare))
	fits(t, declarer, p, ModeDeclare)
	fits(t, declarer, p, ModeDeclare)

	verifier := user(t, url, p.Permissions(ModeVerify))
	fits(t, verifier, p, ModeVerify)
	for _, u := range []string{declarer, verifier} {
		f, err := CheckWritable(context.Background(), session(t, u), p, ModeVerify)
		if err != nil || f != nil {
			t.Errorf("%v, %v", f, err)
		}
		depths, missing, err := Depths(context.Background(), session(t, u), p)
		if err != nil || missing != nil || len(depths) != 3 {
			t.Errorf("%v, %v, %v", depths, missing, err)
		}
		ch := channel(t, u)
		brokertest.Publish(t, ch, p.Waits[0].Exchange, p.Waits[0].Key, amqp.Publishing{})
		brokertest.Publish(t, ch, p.Park.Exchange, p.Park.Key, amqp.Publishing{})
		if _, _, err := ch.Get(p.Queue, true); err != nil {
			t.Error(err)
		}
	}
}

// TestPermissionsMissing takes one right away at a time. The finding names the right, the object, and the line that
// helps.
func TestPermissionsMissing(t *testing.T) {
	url := brokertest.Vhost(t)
	there := build(t, Options{Service: "wms-cincout"})
	fits(t, url, there, ModeDeclare)
	absent := build(t, Options{Service: "abs-ent"})
	const all, none = ".*", "^$"
	for _, c := range []struct {
		name        string
		p           *Plan
		mode        Mode
		permissions Permissions
		want        []string // of the findings: object, right and resource
		on43        []string // more of them from RabbitMQ 4.3
	}{
		{"nothing, objects there, declare", there, ModeDeclare, Permissions{none, none, none}, []string{
			`exchange "wms.retry-exchange.wms-cincout": configure on "wms.retry-exchange.wms-cincout"`,
			`queue "wms.dlq.wms-cincout": configure on "wms.dlq.wms-cincout"`,
			`queue "wms.retry-queue.wms-cincout": configure and read on "wms.retry-queue.wms-cincout"`,
			`queue "wms.queue.wms-cincout": configure and read on "wms.queue.wms-cincout"`,
			`binding of queue "wms.queue.wms-cincout"`, `binding of queue "wms.retry-queue.wms-cincout"`,
		}, []string{`exchange "wms.main-exchange": configure on "wms.main-exchange"`}},
		{"nothing, objects there, verify", there, ModeVerify, Permissions{none, none, none}, nil, []string{
			`exchange "wms.main-exchange": configure on`, `exchange "wms.retry-exchange.wms-cincout": configure on`,
			`queue "wms.dlq.wms-cincout": configure on`, `queue "wms.retry-queue.wms-cincout": configure on`, `queue "wms.queue.wms-cincout": configure on`,
		}},
		{"the shared exchange is not ours to declare", there, ModeDeclare, Permissions{`^wms\.(queue|retry-queue|dlq|retry-exchange)\.wms-cincout$`, all, all}, nil, nil},
		{"no read", there, ModeDeclare, Permissions{all, all, none}, []string{
			`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": read on "wms.main-exchange"`,
			`binding of queue "wms.retry-queue.wms-cincout" to exchange "wms.retry-exchange.wms-cincout" with key "retry": read on "wms.retry-exchange.wms-cincout"`,
		}, nil},
		{"no write", there, ModeDeclare, Permissions{all, none, all}, []string{
			`binding of queue "wms.queue.wms-cincout" to exchange "wms.main-exchange" with key "": write on "wms.queue.wms-cincout"`,
			`binding of queue "wms.retry-queue.wms-cincout"`,
		}, nil},
		{"no write, objects absent", absent, ModeDeclare, Permissions{all, none, all}, []string{
			`queue "abs.retry-queue.abs-ent": write on "amq.default"`, `queue "abs.queue.abs-ent": write on "abs.retry-exchange.abs-ent"`,
			`binding of queue "abs.queue.abs-ent"`, `binding of queue "abs.retry-queue.abs-ent"`,
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := user(t, url, c.permissions)
			got := ensure(t, u, c.p, c.mode)
			want := c.want
			if atLeast43(t) {
				want = append(want, c.on43...)
			}
			if len(got) != len(want) {
				t.Errorf("%d findings, want %d", len(got), len(want))
			}
			for _, f := range got {
				line := f.Object + ": " + strings.Replace(f.Wanted, " permission", "", 1)
				if f.Problem != ProblemPermission || !said(want, line) {
					t.Errorf("%s (%s)", line, f.Problem)
				}
				if !strings.Contains(f.Fix, "rabbitmqctl set_permissions -p "+path(t, url)) || !strings.Contains(f.Fix, c.p.Permissions(c.mode).Read) {
					t.Errorf("no help in %q", f.Fix)
				}
			}
		})
	}
}

// said: from 4.0 the broker names the right itself, which is one where an older one leaves two possible.
func said(want []string, line string) bool {
	for _, w := range want {
		if strings.HasPrefix(line, w) || strings.HasPrefix(line, strings.Replace(w, "configure and read", "configure", 1)) {
			return true
		}
	}
	return false
}

func atLeast43(t testing.TB) bool {
	v := brokertest.Version(t)
	return !strings.HasPrefix(v, "3.") && v >= "4.3"
}

func TestCheckWritable(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout"})
	fits(t, url, p, ModeDeclare)
	f, err := CheckWritable(context.Background(), session(t, user(t, url, Permissions{".*", "^x$", ".*"})), p, ModeVerify)
	if err != nil || len(f) != 2 {
		t.Fatalf("%v, %v", f, err)
	}
	for i, name := range []string{"amq.default", "wms.retry-exchange.wms-cincout"} {
		if f[i].Wanted != `write permission on "`+name+`"` || !strings.Contains(f[i].Fix, "amq\\.default") {
			t.Errorf("%v", f[i])
		}
	}
	for _, q := range p.Queues {
		if n := brokertest.Ready(t, url, q.Name); n != 0 {
			t.Errorf("%d messages in %s", n, q.Name)
		}
	}
	shared := &Plan{Redrive: Route{Exchange: "x"}, Exchanges: []Exchange{{Name: "x", Type: "direct", Shared: true}}}
	if f, err := CheckWritable(context.Background(), nil, shared, ModeVerify); f != nil || err != nil {
		t.Errorf("a shared exchange was tried: %v, %v", f, err)
	}
	absent := build(t, Options{Service: "abs-ent"})
	if f, err := CheckWritable(context.Background(), session(t, url), absent, ModeVerify); f != nil || err != nil {
		t.Errorf("a missing exchange is not a matter of permissions: %v, %v", f, err)
	}
}
