package test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
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

// says runs a command and wants each text in what it prints, or in why it fails.
func (sc *scene) says(code int, args string, texts ...string) {
	sc.t.Helper()
	r := sc.cli(code, strings.Fields(args)...)
	for _, text := range texts {
		if said := map[bool]string{true: r.stdout, false: r.stderr}[code == 0]; !strings.Contains(said, text) {
			sc.t.Errorf("sidecar dlq %s does not say %q:\n%s", args, text, r.all())
		}
	}
}

// declared has the sidecar declare its objects and stops it: what follows needs no running sidecar.
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
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = parked(id, status)
	}
	sc.park(list...)
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
		if d.ID == "c" {
			return status(422)
		}
		return status(503)
	})
	s := sc.run()
	sc.send("a", "b", "c")
	eventually(t, "three parked messages", func() bool { return sc.ready(sc.dlq()) == 3 })
	s.stop()
	sc.says(0, "list", "REF", "MESSAGE ID", " a\n", " b\n", " c\n", "max_retries", "503", "422", "order.created", "3 of 3 messages shown\n")
	sc.says(0, "list --limit 1", "1 of 3 messages shown, 1 read")
	sc.says(0, "list --scan 2", "2 of 3 messages shown, 2 read: more with --scan")
	sc.says(0, "groups", "GROUP", "503", "422", "2 groups of 3 of 3 messages\n")
	groups := documents[struct {
		ID            string
		Count, Status int
	}](t, sc.cli(0, "groups", "--json"))
	if len(groups) != 2 || groups[0].Count != 2 || groups[0].Status != 503 || groups[1].Status != 422 {
		t.Fatalf("%+v", groups)
	}
	list := sc.listed("--group", groups[1].ID)
	if len(list) != 1 || list[0].MessageID != "c" || list[0].Reason != "max_retries" || list[0].Key != "order.created" || len(list[0].Ref) != 16 {
		t.Fatalf("%+v", list)
	}
	for _, id := range []string{"c", list[0].Ref} {
		sc.says(0, "show "+id, list[0].Ref, "status            422", "x-final-status-code", "int32", "left "+sc.queue()+": rejected, 1 time",
			`"order.created"`, "content type      application/json", "{\n  \"id\": \"c\"\n}\n")
	}
	if r := sc.cli(0, "show", "--no-body", "c"); strings.Contains(r.stdout, `"id"`) {
		t.Errorf("a body in %s", r.stdout)
	}
	full := documents[struct {
		listed
		Headers map[string]struct{ Type string }
		Body    struct{ Format string }
	}](t, sc.cli(0, "show", "c", "--json"))
	if len(full) != 1 || full[0].Headers["x-final-status-code"].Type != "int32" || full[0].Body.Format != "json" || full[0].Ref != list[0].Ref {
		t.Errorf("%+v", full)
	}
	if r := sc.cli(1, "show", "absent"); !strings.Contains(r.stderr, `"absent"`) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%q", r.stderr)
	}
	sc.park(parked("c", 500))
	if r := sc.cli(0, "show", "c"); !strings.Contains(r.stderr, "1 other message with this message id") {
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

// TestDLQReaderGoesAway: `list | head` ends well, and what was held is where it was.
func TestDLQReaderGoesAway(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	ids := numbered("message-with-a-rather-long-id", 1500)
	sc.parkIDs(503, ids...)
	for _, args := range [][]string{{"list", "--limit", "0"}, {"list", "--limit", "0", "--json"}} {
		line, code := headOf(t, sc.env, append([]string{"dlq"}, args...)...)
		if code != 0 || line == "" {
			t.Errorf("%v: exit %d after %q", args, code, line)
		}
	}
	if _, code := headOf(t, sc.env, "dlq", "export"); code != 1 {
		t.Errorf("an export that is not read: exit %d", code)
	}
	eventually(t, "everything is back", func() bool { return sc.ready(sc.dlq()) == len(ids) })
	if got := sc.listedIDs(); !slices.Equal(got, ids) {
		t.Errorf("%d messages, or another order", len(got))
	}
}

// headOf runs a command, reads one line of what it prints and goes away.
func headOf(t testing.TB, env map[string]string, args ...string) (line string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.SysProcAttr = environ(env), dieWithTest()
	r := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	line = must.Get(bufio.NewReaderSize(r, 16).ReadString('\n'))(t)
	_ = r.Close()
	_ = cmd.Wait()
	return line, cmd.ProcessState.ExitCode()
}

// TestDLQExportToAFile: it has its name once it is complete, belongs to its owner, and replaces nothing unasked.
func TestDLQExportToAFile(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b")
	dir := t.TempDir()
	file := filepath.Join(dir, "parked.jsonl")
	lines := func() int {
		t.Helper()
		return strings.Count(string(must.Get(os.ReadFile(file))(t)), "\n")
	}
	if r := sc.cli(0, "export", file); !strings.Contains(r.stdout, "2 of 2 messages exported") || lines() != 2 {
		t.Errorf("%s", r.all())
	}
	if info := must.Get(os.Stat(file))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("%v", info.Mode())
	}
	sc.parkIDs(422, "c")
	if r := sc.cli(1, "export", file); !strings.Contains(r.stderr, "--force") || lines() != 2 {
		t.Errorf("%s", r.stderr)
	}
	if d := sc.acted("export", file, "--force", "--status", "422"); d.Done != 1 || d.Action != "export" || lines() != 1 {
		t.Errorf("%+v", d)
	}
	if r := sc.cli(0, "export", "--limit", "1"); strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stderr, "1 of 3 messages exported") {
		t.Errorf("%s", r.all())
	}
	if r := sc.cli(0, "export", "-", "-q"); strings.Count(r.stdout, "\n") != 3 || r.stderr != "" {
		t.Errorf("%s", r.all())
	}
	sc.deleteQueue(sc.dlq())
	if r := sc.cli(1, "export", filepath.Join(dir, "other")); !strings.Contains(r.stderr, "the dead-letter queue does not exist: ") ||
		!strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("no queue: %q", r.stderr)
	}
	if all := must.Get(os.ReadDir(dir))(t); len(all) != 1 {
		t.Errorf("%v", all)
	}
}

// TestDLQImportGoesOn: what was exported is parked again, as it was. A bad line ends an import, which says how to go on.
func TestDLQImportGoesOn(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	exported := sc.cli(0, "export", "-q").stdout
	lines := strings.SplitAfter(exported, "\n")
	sc.acted("discard", "--all", "--yes")
	file := filepath.Join(t.TempDir(), "parked.jsonl")
	must.Do(t, os.WriteFile(file, []byte(lines[0]+lines[1][:40]+"\n"+lines[2]), 0o600))
	r := sc.cli(1, "import", file)
	if !strings.Contains(r.stderr, "line 2") || !strings.Contains(r.stderr, "--skip 1") || !strings.Contains(r.stdout, "1 message imported") {
		t.Errorf("%s", r.all())
	}
	must.Do(t, os.WriteFile(file, []byte(exported), 0o600))
	if d := sc.acted("import", "--skip", "1", file); d.Done != 2 || d.Action != "import" {
		t.Errorf("%+v", d)
	}
	if again := sc.cli(0, "export", "-q").stdout; again != exported {
		t.Errorf("parked again:\n%s\nwas:\n%s", again, exported)
	}
	sc.cli(1, "import", file+".missing")
}
