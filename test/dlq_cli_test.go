package test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"
)

// cli runs `sidecar dlq args…` and wants that exit code.
func (sc *scene) cli(code int, args ...string) result {
	sc.t.Helper()
	r := command(sc.t, sc.env, append([]string{"dlq"}, args...)...)
	if r.code != code {
		sc.t.Fatalf("sidecar dlq %q: exit %d, want %d:\n%s", args, r.code, code, r.all())
	}
	if code != 0 && r.stderr == "" {
		sc.t.Errorf("sidecar dlq %q: exit %d without a word", args, code)
	}
	return r
}

// declared has the sidecar declare its objects and stops it: what follows needs none that runs.
func (sc *scene) declared() *scene {
	sc.t.Helper()
	sc.run().stop()
	return sc
}

// park publishes to the dead-letter queue.
func (sc *scene) park(m ...amqp.Publishing) {
	sc.t.Helper()
	sc.publish("", sc.dlq(), m...)
}

// parked is a message as the sidecar parks it.
func parked(id string, status int) amqp.Publishing {
	m := message(id)
	m.Headers = amqp.Table{
		"x-final-reason": "max_retries", "x-final-status-code": int32(status), "x-final-retry-count": int32(10),
		"x-final-at": "2026-11-21T03:38:13.278Z", "x-original-routing-key": "order.created",
	}
	return m
}

func (sc *scene) parkIDs(status int, ids ...string) {
	sc.t.Helper()
	for _, id := range ids {
		sc.park(parked(id, status))
	}
}

// documents are the lines of a --json output.
func documents[T any](t testing.TB, r result) (list []T) {
	t.Helper()
	for line := range strings.Lines(r.stdout) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		list = append(list, one)
	}
	return list
}

type listed struct {
	Ref, Reason string
	MessageID   string `json:"message_id"`
	Key         string `json:"routing_key"`
}

type done struct {
	Queue, Action, Error                           string
	Total, Scanned, Matched, Done, Failed, Skipped int
	DryRun                                         bool `json:"dry_run"`
	Canary                                         struct{ Sent, Good, Bad int }
}

func (sc *scene) listed(args ...string) []listed {
	sc.t.Helper()
	return documents[listed](sc.t, sc.cli(0, append([]string{"list", "--json", "--limit", "0"}, args...)...))
}

// listedIDs are the message ids in the order of the queue.
func (sc *scene) listedIDs(args ...string) []string {
	sc.t.Helper()
	var ids []string
	for _, m := range sc.listed(args...) {
		ids = append(ids, m.MessageID)
	}
	return ids
}

func (sc *scene) acted(args ...string) done {
	sc.t.Helper()
	return documents[done](sc.t, sc.cli(0, append(args, "--json")...))[0]
}

// TestDLQShowsWhatIsParked: people see ids and reasons, scripts the same as JSON.
func TestDLQShowsWhatIsParked(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1")
	sc.app.otherwise(func(d *delivery) answer {
		if d.id == "c" {
			return status(422)
		}
		return status(503)
	})
	s := sc.run()
	sc.send("a", "b", "c")
	eventually(t, "three parked messages", func() bool { return sc.ready(sc.dlq()) == 3 })
	s.stop()

	r := sc.cli(0, "list")
	for _, want := range []string{"REF", "MESSAGE ID", " a\n", " b\n", " c\n", "max_retries", "503", "422", "order.created", "3 of 3 messages shown\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	if r = sc.cli(0, "list", "--limit", "1"); strings.Count(r.stdout, "max_retries") != 1 || !strings.Contains(r.stdout, "1 of 3 messages shown, 1 looked at") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs("--status", "422"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("%q", got)
	}
	for _, m := range sc.listed() {
		if m.Reason != "max_retries" || m.Key != "order.created" || len(m.Ref) != 16 {
			t.Errorf("%+v", m)
		}
	}

	r = sc.cli(0, "groups")
	for _, want := range []string{"GROUP", "503", "422", "2 groups of 3 of 3 messages\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	groups := documents[struct {
		ID            string
		Count, Status int
	}](t, sc.cli(0, "groups", "--json"))
	if len(groups) != 2 || groups[0].Count != 2 || groups[0].Status != 503 || groups[1].Status != 422 {
		t.Fatalf("%+v", groups)
	}
	if got := sc.listedIDs("--group", groups[1].ID); !slices.Equal(got, []string{"c"}) {
		t.Errorf("group %s: %q", groups[1].ID, got)
	}

	c := sc.listed("--status", "422")[0]
	for _, id := range []string{"c", c.Ref} {
		r = sc.cli(0, "show", id)
		for _, want := range []string{
			c.Ref, "status            422", "x-final-status-code", "int32", "left " + sc.queue() + ": rejected, 1 time",
			`"order.created"`, "content type      application/json", "{\n  \"id\": \"c\"\n}\n",
		} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("show %s: no %q in\n%s", id, want, r.stdout)
			}
		}
	}
	if r = sc.cli(0, "show", "--no-body", "c"); strings.Contains(r.stdout, `"id"`) {
		t.Errorf("a body in %s", r.stdout)
	}
	full := documents[struct {
		listed
		Headers map[string]struct{ Type string }
		Body    struct{ Format, Text string }
	}](t, sc.cli(0, "show", "c", "--json"))
	if len(full) != 1 || full[0].Headers["x-final-status-code"].Type != "int32" || full[0].Body.Format != "json" || full[0].Ref != c.Ref {
		t.Errorf("%+v", full)
	}
	if r = sc.cli(1, "show", "nobody"); !strings.Contains(r.stderr, `"nobody"`) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%q", r.stderr)
	}
	sc.park(parked("c", 500))
	if r = sc.cli(0, "show", "c"); !strings.Contains(r.stderr, "1 other message with this message id") {
		t.Errorf("%q", r.stderr)
	}
	if r = sc.cli(0, "show", "c", "-q"); r.stderr != "" {
		t.Errorf("%q", r.stderr)
	}
}

// TestDLQLookingChangesNothing: neither what is there nor its order, however often and however deep people look.
func TestDLQLookingChangesNothing(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 12)
			sc.parkIDs(503, ids...)
			for range 6 {
				for _, look := range [][]string{{"list"}, {"groups"}, {"show", "m-3"}, {"export"}, {"redrive", "--dry-run"}, {"discard", "--all", "--dry-run"}} {
					sc.cli(0, look...)
				}
				if got := sc.listedIDs(); !slices.Equal(got, ids) {
					t.Fatalf("%q", got)
				}
				for _, look := range [][]string{{"list", "--limit", "2"}, {"list", "--scan", "5"}, {"export", "--limit", "3"}, {"redrive", "--limit", "1", "--dry-run"}} {
					sc.cli(0, look...)
				}
				if got := sc.listedIDs(); !slices.Equal(got, ids) {
					t.Fatalf("after looking at some of them: %q", got)
				}
			}
			for i, d := range sc.take(sc.dlq(), len(ids)) {
				if d.MessageId != ids[i] {
					t.Errorf("at place %d: %s", i+1, d.MessageId)
				}
			}
		})
	}
}

// TestDLQRedriveAllEnds: an app that always fails gets each message once more, and each is parked again.
func TestDLQRedriveAllEnds(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			sc.app.otherwise(func(*delivery) answer { return status(500) })
			s := sc.run()
			sc.send("a", "b", "c")
			eventually(t, "three parked messages", func() bool { return sc.ready(sc.dlq()) == 3 })
			if r := sc.cli(0, "redrive"); !strings.Contains(r.stdout, "3 of 3 messages redriven\n") {
				t.Errorf("%s", r.all())
			}
			eventually(t, "nine receipts, and three parked again", func() bool { return sc.app.total() == 9 && sc.ready(sc.dlq()) == 3 })
			for _, id := range []string{"a", "b", "c"} {
				if seen := sc.app.seen(id); len(seen) != 3 || seen[2].number("Amqp-Retry-Count") != 1 {
					t.Errorf("%s: %d receipts, the last with retry count %d", id, len(seen), seen[len(seen)-1].number("Amqp-Retry-Count"))
				}
			}
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sc.take(sc.dlq(), 3) {
				by, _ := d.Headers["x-redriven-by"].(string)
				if asInt(d.Headers["x-redriven-count"]) != 1 || d.Headers["x-redriven-from"] != sc.dlq() || !strings.HasSuffix(by, "@"+host) || d.Headers["x-redriven-at"] == nil {
					t.Errorf("%s: %v", d.MessageId, d.Headers)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQRedriveReset gives full fresh attempts, to the messages that are named and to no others.
func TestDLQRedriveReset(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1")
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	s := sc.run()
	sc.send("a", "b")
	eventually(t, "two parked messages", func() bool { return sc.ready(sc.dlq()) == 2 })
	if d := sc.acted("redrive", "a", "--reset"); d.Done != 1 || d.Matched != 1 || d.Action != "redrive" || d.Queue != sc.dlq() {
		t.Errorf("%+v", d)
	}
	eventually(t, "two more attempts at a, and parked again", func() bool { return len(sc.app.seen("a")) == 4 && sc.ready(sc.dlq()) == 2 })
	for i, want := range []int{0, 1, 0, 1} {
		if got := sc.app.seen("a")[i].number("Amqp-Retry-Count"); got != want {
			t.Errorf("attempt %d has retry count %d, want %d", i+1, got, want)
		}
	}
	if n := len(sc.app.seen("b")); n != 2 {
		t.Errorf("b came %d times", n)
	}
	if r := sc.cli(1, "redrive", "a", "gone"); !strings.Contains(r.stderr, "only 1 of the 2 messages") {
		t.Errorf("%q", r.stderr)
	}
	if r := sc.cli(1, "redrive", "gone"); !strings.Contains(r.stderr, `"gone"`) {
		t.Errorf("%q", r.stderr)
	}
	eventually(t, "a parked again", func() bool { return len(sc.app.seen("a")) == 5 && sc.ready(sc.dlq()) == 2 })
	sc.settledAll(s, 2)
}

// TestDLQCanary: the rest follows when what was sent ahead was taken, and stays when it failed again.
func TestDLQCanary(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	healed := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer {
		select {
		case <-healed:
			return status(200)
		default:
			return status(500)
		}
	})
	s := sc.run()
	ids := numbered("m", 9)
	sc.send(ids...)
	eventually(t, "nine parked messages", func() bool { return sc.ready(sc.dlq()) == 9 })
	r := sc.cli(1, "redrive", "--canary", "1", "--json")
	d := documents[done](t, r)[0]
	if d.Canary.Sent != 1 || d.Canary.Bad != 1 || d.Done != 1 || !strings.Contains(d.Error, "canary failed") || !strings.Contains(r.stderr, "failed again") {
		t.Errorf("%+v\n%s", d, r.stderr)
	}
	eventually(t, "nine parked again", func() bool { return sc.ready(sc.dlq()) == 9 })
	if n := sc.app.total(); n != 10 {
		t.Errorf("%d receipts: more than the canary was sent", n)
	}
	close(healed)
	if r := sc.cli(0, "redrive", "--canary", "3"); !strings.Contains(r.stdout, "9 of 9 messages redriven; canary: 3 sent, 3 good, 0 bad") {
		t.Errorf("%s", r.all())
	}
	eventually(t, "all taken", func() bool { return sc.app.total() == 19 })
	sc.settledAll(s, 0)
	sc.parkIDs(503, "x")
	if r := sc.cli(1, "redrive", "--canary", "1", "--canary-timeout", "200ms"); !strings.Contains(r.stderr, "no verdict") {
		t.Errorf("nobody is there to take it: %s", r.all())
	}
}

// TestDLQDryRunAndLimit: a dry run counts and moves nothing, a limit bounds what is moved.
func TestDLQDryRunAndLimit(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	sc.parkIDs(422, "d")
	for _, args := range [][]string{{"redrive", "--status", "503", "--dry-run"}, {"discard", "--status", "5xx", "--dry-run"}} {
		if d := sc.acted(args...); !d.DryRun || d.Matched != 3 || d.Done != 0 || d.Total != 4 {
			t.Errorf("%v: %+v", args, d)
		}
	}
	if d := sc.acted("purge", "--dry-run"); d.Matched != 4 || d.Done != 0 {
		t.Errorf("%+v", d)
	}
	if r := sc.cli(0, "redrive", "--dry-run"); !strings.Contains(r.stdout, "4 of 4 messages would be redriven; nothing was changed") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Fatalf("%q", got)
	}
	if d := sc.acted("redrive", "--limit", "2", "--rate", "1000/s"); d.Done != 2 {
		t.Errorf("%+v", d)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"c", "d"}) || sc.ready(sc.queue()) != 2 {
		t.Errorf("%q, and %d in the service's queue", got, sc.ready(sc.queue()))
	}
	if d := sc.acted("redrive", "--status", "599"); d.Done != 0 || d.Matched != 0 || d.Total != 2 {
		t.Errorf("nothing matches: %+v", d)
	}
}

func TestDLQDiscard(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "a")
	sc.parkIDs(422, "c", "d")
	for _, args := range [][]string{{"discard"}, {"discard", "--all"}, {"discard", "--status", "422"}, {"discard", "c"}, {"purge"}, {"discard", "--yes"}} {
		sc.cli(64, args...)
	}
	if n := sc.ready(sc.dlq()); n != 5 {
		t.Fatalf("%d are left without anybody having said so", n)
	}
	if d := sc.acted("discard", "--status", "422", "--limit", "1", "--yes"); d.Done != 1 {
		t.Errorf("%+v", d)
	}
	first := sc.listed()[0]
	if d := sc.acted("discard", first.Ref, "--yes"); d.Done != 1 && d.Done != 2 {
		t.Errorf("by its reference: %+v", d)
	}
	sc.cli(1, "discard", "gone", "--yes")
	if r := sc.cli(0, "discard", "--all", "--yes"); !strings.Contains(r.stdout, "messages discarded") {
		t.Errorf("%s", r.stdout)
	}
	if n := sc.ready(sc.dlq()); n != 0 {
		t.Errorf("%d are left", n)
	}
	if r := sc.cli(0, "purge", "--yes"); !strings.Contains(r.stdout, "the queue is empty") {
		t.Errorf("%s", r.stdout)
	}
}

// TestDLQOneAtATime: while one command works on the queue another is refused. A signal ends the first at a safe point, and
// the same command again does the rest.
func TestDLQOneAtATime(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType)
			s := sc.run()
			ids := numbered("m", 20)
			sc.parkIDs(503, ids...)
			slow := launch(t, sc.env, "dlq", "redrive", "--rate", "30/m")
			eventually(t, "the first message", func() bool { return sc.app.total() > 0 })
			for _, args := range [][]string{{"redrive"}, {"list"}, {"purge", "--yes"}, {"export"}} {
				if r := sc.cli(1, args...); !strings.Contains(r.stderr, "in use") || !strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
					t.Errorf("%v: %q", args, r.stderr)
				}
			}
			slow.signal(syscall.SIGTERM)
			if code := slow.exitCode(); code != 1 || !strings.Contains(slow.log.String(), "stopped by a signal") || !strings.Contains(slow.log.String(), "the rest is still in the queue") {
				t.Errorf("exit %d: %s", code, slow.log.String())
			}
			eventually(t, "every message in one place", func() bool { return sc.ready(sc.dlq())+sc.app.total() == len(ids) })
			left := sc.ready(sc.dlq())
			if left == 0 || left == len(ids) {
				t.Errorf("%d left", left)
			}
			if d := sc.acted("redrive"); d.Done != left {
				t.Errorf("%d left, %+v", left, d)
			}
			eventually(t, "all of them", func() bool { return sc.app.total() == len(ids) })
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQRedriveKilled: kill -9 of the command at any point loses nothing; the same command again does the rest.
func TestDLQRedriveKilled(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50")
	s := sc.run()
	ids := numbered("m", 3000)
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = parked(id, 503)
	}
	sc.park(list...)
	for seen := range 3 {
		r := launch(t, sc.env, "dlq", "redrive", "--rate", "2000/s")
		eventually(t, "some more messages", func() bool { return sc.app.total() > 300*(seen+1) })
		r.kill()
		eventually(t, "what it held is back", func() bool { return sc.consumers(sc.dlq()) == 0 })
	}
	eventually(t, "the rest", func() bool { sc.cli(0, "redrive", "-q"); return sc.ready(sc.dlq()) == 0 })
	for _, id := range ids {
		eventually(t, id, func() bool { return len(sc.app.seen(id)) > 0 })
	}
	sc.settledAll(s, 0)
}

// TestDLQImportGoesOn: a bad line ends an import, which says how to go on.
func TestDLQImportGoesOn(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	lines := strings.SplitAfter(sc.cli(0, "export", "-q").stdout, "\n")
	sc.acted("purge", "--yes")
	file := filepath.Join(t.TempDir(), "parked.jsonl")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(lines[0], lines[1][:40]+"\n", lines[2])
	r := sc.cli(1, "import", file)
	if !strings.Contains(r.stderr, "line 2") || !strings.Contains(r.stderr, "--skip 1") || !strings.Contains(r.stdout, "1 message imported") {
		t.Errorf("%s", r.all())
	}
	write(lines...)
	if d := sc.acted("import", "--skip", "1", file); d.Done != 2 || d.Action != "import" {
		t.Errorf("%+v", d)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	sc.cli(0, "import", file, "--skip", "3")
	sc.cli(1, "import", file+".missing")
	if n := sc.ready(sc.dlq()); n != 3 {
		t.Errorf("%d parked", n)
	}
}

// TestDLQExportToAFile: it has its name once it is complete, belongs to its owner, and replaces nothing unasked.
func TestDLQExportToAFile(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b")
	dir := t.TempDir()
	file := filepath.Join(dir, "parked.jsonl")
	if r := sc.cli(0, "export", file); !strings.Contains(r.stdout, "2 of 2 messages exported") {
		t.Errorf("%s", r.all())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before, _ := os.ReadFile(file)
	sc.parkIDs(422, "c")
	if r := sc.cli(1, "export", file); !strings.Contains(r.stderr, "--force") {
		t.Errorf("%s", r.stderr)
	}
	if now, _ := os.ReadFile(file); string(now) != string(before) || strings.Count(string(now), "\n") != 2 {
		t.Errorf("%q", now)
	}
	if d := sc.acted("export", file, "--force", "--status", "422"); d.Done != 1 || d.Action != "export" {
		t.Errorf("%+v", d)
	}
	if now, _ := os.ReadFile(file); strings.Count(string(now), "\n") != 1 {
		t.Errorf("%q", now)
	}
	if r := sc.cli(0, "export", "--limit", "1"); strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stderr, "1 of 3 messages exported") {
		t.Errorf("%s", r.all())
	}
	if r := sc.cli(0, "export", "-", "-q"); strings.Count(r.stdout, "\n") != 3 || r.stderr != "" {
		t.Errorf("%s", r.all())
	}
	sc.deleteQueue(sc.dlq())
	sc.cli(1, "export", filepath.Join(dir, "other"))
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestDLQWithoutAQueueOrABroker: one sentence, and soon.
func TestDLQWithoutAQueueOrABroker(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"list"}, {"groups"}, {"show", "m"}, {"redrive"}, {"discard", "--all", "--yes"}, {"export"}, {"import"}, {"purge", "--yes"}}
	sc := newScene(t)
	for _, args := range commands {
		if r := sc.cli(1, args...); !strings.Contains(r.stderr, sc.dlq()+" does not exist") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("no queue, %v: %q", args, r.stderr)
		}
	}
	sc.with("AMQP_URL", "amqp://u:canary-secret@"+freeAddr(t)+"/,amqp://u:canary-secret@"+freeAddr(t)+"/")
	for _, args := range commands {
		r := sc.cli(1, args...)
		if !strings.Contains(r.stderr, "the broker cannot be reached") || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.all(), "canary-secret") {
			t.Errorf("no broker, %v: %q", args, r.stderr)
		}
	}
	sc.with("AMQP_URL", "nonsense")
	if r := sc.cli(64, "list"); !strings.Contains(r.stderr, "SIDECAR_AMQP_URL") {
		t.Errorf("%q", r.stderr)
	}
	delete(sc.env, "SIDECAR_SERVICE")
	sc.cli(64, "list")
}

// TestDLQLeastPrivilege: what the plan asks for is enough.
func TestDLQLeastPrivilege(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	user := newAccount(t)
	user.least(sc.env)
	s := sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password").run()
	sc.parkIDs(503, "a", "b", "c", "d")
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%q", got)
	}
	exported := sc.cli(0, "export", "--id", "d").stdout
	sc.acted("discard", "d", "--yes")
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	sc.acted("import", file)
	if d := sc.acted("redrive", "--canary", "1"); d.Done != 4 || d.Canary.Good != 1 {
		t.Errorf("%+v", d)
	}
	eventually(t, "all taken", func() bool { return sc.app.total() == 4 })
	sc.settledAll(s, 0)
	sc.parkIDs(503, "e")
	user.may("^$", "^$", "^$")
	if r := sc.cli(1, "list"); !strings.Contains(r.stderr, "403") || strings.Contains(r.all(), "canary-password") {
		t.Errorf("%q", r.stderr)
	}
}

// hostileParked is a message with something that a terminal obeys in every field.
func hostileParked() amqp.Publishing {
	const evil = "\x1b[2J\x1b]0;pwned\x07\u009b31m\u202e\r\nfake line\x7f\x00"
	m := parked(strings.TrimSuffix("id"+evil, "\x00"), 503) // no argument of a command can hold that one
	m.ContentType, m.Type, m.AppId, m.CorrelationId, m.ReplyTo = "text/"+evil, evil, evil, evil, evil
	for _, h := range []string{"reason", "error", "detail", "problem-type", "problem-title", "problem-detail"} {
		m.Headers["x-final-"+h] = h + evil
	}
	m.Headers["x-original-routing-key"], m.Headers["x-original-exchange"] = "key"+evil, "exchange"+evil
	m.Headers["name"+evil] = amqp.Table{"k" + evil: []any{evil, []byte(evil)}}
	m.Headers["x-death"] = []any{amqp.Table{"queue": evil, "reason": evil, "exchange": evil, "count": int64(1), "routing-keys": []any{evil}}}
	m.Body = []byte("{\"a\":\"\u009b31m\u202e\x7f\"}")
	return m
}

// TestDLQHarmsNoTerminal: nothing that a message contains moves a cursor, begins a line or reorders text.
func TestDLQHarmsNoTerminal(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	evil := hostileParked()
	sc.park(evil)
	text := hostileParked()
	text.Body = []byte("plain \u009b31m\r\u202e text")
	text.MessageId = "text"
	sc.park(text)
	foreign := hostileParked()
	foreign.Headers["x-original-queue"] = "theirs\x1b[2J"
	foreign.Body = []byte{0x1b, '[', '2', 'J', 0xff}
	foreign.MessageId = "foreign"
	sc.park(foreign)
	refs := []string{}
	for _, m := range sc.listed() {
		refs = append(refs, m.Ref)
	}
	if len(refs) != 3 {
		t.Fatalf("%q", refs)
	}
	looks := [][]string{{"list"}, {"list", "--json"}, {"groups"}, {"groups", "--json"}, {"export"}, {"redrive", "--dry-run"}}
	for _, ref := range refs {
		looks = append(looks, []string{"show", ref}, []string{"show", ref, "--json"})
	}
	for _, look := range looks {
		r := sc.cli(0, look...)
		if i := strings.IndexFunc(r.all(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("%v: %q", look, r.all()[i:min(i+40, len(r.all()))])
		}
		if strings.Contains(r.all(), "\nfake line") {
			t.Errorf("%v: a line of the message's own", look)
		}
	}
	if got := sc.listed()[0].MessageID; got != evil.MessageId {
		t.Errorf("scripts get %q", got)
	}
	if r := sc.cli(0, "show", evil.MessageId); !strings.Contains(r.stdout, refs[0]) {
		t.Errorf("%s", r.all())
	}
	if r := sc.cli(1, "show", "\x1b[2J"); strings.Contains(r.all(), "\x1b") {
		t.Errorf("%q", r.all())
	}
}

// TestDLQReaderGoesAway: `list | head` ends well, and what was held is where it was.
func TestDLQReaderGoesAway(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	list := make([]amqp.Publishing, 2000)
	for i := range list {
		list[i] = parked("message-with-a-rather-long-id-"+strconv.Itoa(i), 503)
	}
	sc.park(list...)
	for _, args := range [][]string{{"list", "--limit", "0"}, {"list", "--limit", "0", "--json"}} {
		line, code := headOf(t, sc.env, append([]string{"dlq"}, args...)...)
		if code != 0 || line == "" {
			t.Errorf("%v: exit %d after %q", args, code, line)
		}
	}
	if _, code := headOf(t, sc.env, "dlq", "export"); code != 1 {
		t.Errorf("an export that nobody reads: exit %d", code)
	}
	eventually(t, "everything is back", func() bool { return sc.ready(sc.dlq()) == len(list) })
	if got := sc.listedIDs(); len(got) != len(list) || got[0] != list[0].MessageId || got[1999] != list[1999].MessageId {
		t.Errorf("%d messages", len(got))
	}
}

// headOf runs a command, reads one line of what it prints and goes away.
func headOf(t testing.TB, env map[string]string, args ...string) (line string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.SysProcAttr = environ(env), dieWithTest()
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err = bufio.NewReaderSize(r, 16).ReadString('\n')
	if err != nil {
		t.Errorf("%v: %v", args, err)
	}
	_ = r.Close()
	_ = cmd.Wait()
	return line, cmd.ProcessState.ExitCode()
}
