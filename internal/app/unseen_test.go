package app

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestReturnedRetryIsAFinding: a missing binding shows when a message returns, and from then on nothing more is
// taken until it may be tried again.
func TestReturnedRetryIsAFinding(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("m", apptest.Say(apptest.Status(500)), apptest.Say(apptest.Status(200)))
	env := []string{"SIDECAR_APP_URL=" + app.URL, "SIDECAR_RETRY_DELAY=200ms"}
	plan := declared(t, live(t, env...))
	ch := brokertest.Channel(t, brokertest.URL(t))
	wait := plan.Waits[0]
	a, _, _ := run(t, live(t, append(env, "SIDECAR_TOPOLOGY_MODE=verify")...), checkEvery(time.Second))
	brokertest.Eventually(t, time.Minute, "the one that only verifies", func() bool { return a.Ready("").Ready })
	must.Do(t, ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil))
	brokertest.Publish(t, ch, "", plan.Queue, withID("m"))
	brokertest.Eventually(t, time.Minute, "the finding", func() bool {
		st := a.Status()
		return len(st.Findings) == 1 && st.Findings[0].Problem == "missing" && strings.Contains(st.Findings[0].Object, wait.Queue) && st.State == "paused"
	})
	must.Do(t, ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil))
	brokertest.Eventually(t, time.Minute, "the second attempt, and no finding", func() bool { return len(app.Seen("m")) == 2 && !a.subscriptions[0].status.bad() })
}

// TestCheckDuringAnAlarm: the broker answers nothing that was published, which is not the topology's fault. A right that
// is missing is found when the alarm is over.
func TestCheckDuringAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	declared(t, live(t))
	calm := node.Alarm()
	if err := Check(t.Context(), live(t), io.Discard, false, plain); !errors.Is(err, errBlocked) {
		t.Error(err)
	}
	user, cfg := account(t, "SIDECAR_TOPOLOGY_MODE=verify")
	brokertest.Ctl(t, "set_permissions", user, ".*", "^$", ".*")
	_, sub, _ := consuming(t, cfg, checkEvery(300*time.Millisecond))
	calm()
	brokertest.Eventually(t, time.Minute, "the missing right", sub.status.bad)
	if findings, _ := sub.status.last(); !strings.Contains(findings[0].Object, "exchange") || findings[0].Problem != "permission" {
		t.Errorf("found %v", findings)
	}
}

// TestWarnedOnce: what the configuration and what the plan has to say is one list.
func TestWarnedOnce(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_SERVICE=nohyphen", "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled",
		"SIDECAR_APP_URL=http://192.0.2.1/")
	a := fresh(t, cfg)
	_, printed, err := PresetValues(cfg)
	must.Do(t, err)
	unasked := slices.DeleteFunc(slices.Clone(printed), func(w string) bool { return strings.Contains(w, "where none exists") })
	if logged := a.warnings(); !slices.Equal(unasked, logged) || len(printed) != len(logged)+1 {
		t.Errorf("printed %q, logged before the broker was asked %q", printed, logged)
	}
	for _, want := range []string{"has no hyphen", "is discarded", "is a classic queue", "SIDECAR_APP_URL"} {
		if n := strings.Count(strings.Join(printed, "\n"), want); n != 1 {
			t.Errorf("%q is there %d times: %q", want, n, printed)
		}
	}
}

// TestUnseenWayIsWarnedOf: where retries return through an exchange and nothing declares it, a warning says so.
func TestUnseenWayIsWarnedOf(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"declare": false, "verify": true, "none": true} {
		a := fresh(t, load(t, "SIDECAR_SERVICE=freeflow-user", "SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_TOPOLOGY_MODE="+mode))
		if got := strings.Contains(strings.Join(a.warnings(), "\n"), "user.retry"); got != want {
			t.Errorf("%s: %v", mode, a.warnings())
		}
	}
}
