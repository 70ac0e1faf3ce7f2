package console

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// scene is a service of its own: an app, a sidecar beside it, and the queues they have in the broker.
type scene struct {
	t       testing.TB
	name    string // of the service
	app     app
	env     map[string]string
	cmd     *exec.Cmd
	admin   string // host:port
	control string // host:port
	log     *apptest.Log
	ch      *amqp.Channel
	node    *brokertest.Node // of its own; nil: shared
}

// scenes bounds how many tests have a page open: pages compute, where other tests wait.
var scenes = make(chan struct{}, 3)

// newScene prepares everything; nothing runs yet but the app.
func newScene(t testing.TB, pairs ...string) *scene {
	t.Helper()
	scenes <- struct{}{}
	t.Cleanup(func() { <-scenes })
	return prepareScene(t, pairs...)
}

// prepareScene is newScene for a test that opens no page yet.
func prepareScene(t testing.TB, pairs ...string) *scene {
	t.Helper()
	sc := &scene{t: t, name: "con-shop", app: app{apptest.NewApp(t)}}
	sc.env = map[string]string{
		"SIDECAR_SERVICE": sc.name, "SIDECAR_AMQP_URL": brokertest.URL(t), "SIDECAR_APP_URL": sc.app.URL,
		"SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
		"SIDECAR_RETRY_DELAY": "200ms", "SIDECAR_MAX_RETRIES": "0",
	}
	return sc.with(pairs...)
}

// with sets variables: pairs of a name without SIDECAR_ and a value.
func (sc *scene) with(pairs ...string) *scene {
	for i := 0; i < len(pairs); i += 2 {
		sc.env["SIDECAR_"+pairs[i]] = pairs[i+1]
	}
	return sc
}

// url is where the sidecar finds the broker.
func (sc *scene) url() string { return sc.env["SIDECAR_AMQP_URL"] }

// prefix is the part of the service's name with which those of its queues and exchanges begin.
func (sc *scene) prefix() string { prefix, _, _ := strings.Cut(sc.name, "-"); return prefix }

func (sc *scene) exchange() string { return sc.prefix() + ".main-exchange" }
func (sc *scene) queue() string    { return sc.prefix() + ".queue." + sc.name }
func (sc *scene) dlq() string      { return sc.prefix() + ".dlq." + sc.name }

// start runs the sidecar until the test ends, and waits until it serves.
func (sc *scene) start() *scene {
	sc.t.Helper()
	sc.cmd = exec.Command(program)
	sc.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range sc.env {
		sc.cmd.Env = append(sc.cmd.Env, k+"="+v)
	}
	sc.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &apptest.Log{}
	sc.control, sc.log = "", log
	sc.cmd.Stdout, sc.cmd.Stderr = log, log
	must.Do(sc.t, sc.cmd.Start())
	cmd := sc.cmd
	sc.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text := log.String()
		if strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
			sc.t.Errorf("the sidecar failed:\n%s", text)
		} else if sc.t.Failed() {
			sc.t.Logf("the sidecar said:\n%s", text)
		}
	})
	eventually(sc.t, "the sidecar listens", func() bool {
		var e struct{ Admin, Control string }
		if line := log.Lines(`"listening"`); len(line) > 0 && json.Unmarshal([]byte(line[0]), &e) == nil {
			sc.admin, sc.control = e.Admin, e.Control
		}
		return sc.control != ""
	})
	return sc
}

// run starts the sidecar and waits until it consumes.
func (sc *scene) run() *scene {
	sc.t.Helper()
	sc.start().become("consuming")
	return sc
}

// become waits for the sidecar to be in a state.
func (sc *scene) become(state string) {
	sc.t.Helper()
	eventually(sc.t, "the sidecar is "+state, func() bool { return sc.state() == state })
}

func (sc *scene) state() string {
	var s struct{ State string }
	sc.get("/status", &s)
	return s.State
}

// call asks the control listener itself, with the write token if there is one.
func (sc *scene) call(method, path, body string) (int, string) {
	sc.t.Helper()
	req := must.Get(http.NewRequestWithContext(context.Background(), method, "http://"+sc.control+path, strings.NewReader(body)))(sc.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := sc.env["SIDECAR_CONTROL_TOKEN"]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func (sc *scene) get(path string, into any) {
	sc.t.Helper()
	if code, body := sc.call(http.MethodGet, path, ""); code == http.StatusOK {
		if err := json.Unmarshal([]byte(body), into); err != nil {
			sc.t.Fatalf("GET %s: %v in %s", path, err, body)
		}
	}
}

// flow hands on the flow events of the sidecar until the function has seen enough.
func (sc *scene) flow(enough func(data []byte) bool) {
	sc.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+sc.control+"/events", nil))(sc.t)
	res := must.Get(http.DefaultClient.Do(req))(sc.t)
	defer func() { _ = res.Body.Close() }()
	event := ""
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if name, ok := strings.CutPrefix(in.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && event == "flow" && enough([]byte(data)) {
			return
		}
	}
	sc.t.Fatal("the events ended too early")
}

// publish is confirmed and mandatory.
func (sc *scene) publish(key string, messages ...amqp.Publishing) {
	sc.t.Helper()
	if sc.ch == nil {
		sc.ch = brokertest.Channel(sc.t, sc.url())
	}
	for _, m := range messages {
		brokertest.Publish(sc.t, sc.ch, sc.exchange(), key, m)
	}
}

// park publishes messages that fail with a status, and waits until all are parked.
func (sc *scene) park(status int, key string, ids ...string) {
	sc.t.Helper()
	before := max(sc.ready(sc.dlq()), 0)
	for _, id := range ids {
		sc.app.on(id, status)
		sc.publish(key, message(id))
	}
	sc.parked(before + len(ids))
}

func (sc *scene) parked(n int) {
	sc.t.Helper()
	eventually(sc.t, "so many parked messages", func() bool { return sc.ready(sc.dlq()) == n })
}

func (sc *scene) ready(queue string) int { return brokertest.Ready(sc.t, sc.url(), queue) }

func message(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: []byte(`{"id":"` + id + `"}`)}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	brokertest.Eventually(t, patience, what, ok)
}

// app plays the user's service.
type app struct{ *apptest.App }

type answer struct {
	status  int
	problem string // its details; "" for none
	once    bool   // the next time the message gets 200
}

// on sets the answer to a message; 0 is success.
func (a app) on(id string, status int) { a.answer(id, answer{status: status}) }

func (a app) answer(id string, to answer) {
	var lines []string
	if to.problem != "" {
		lines = append(lines, "Content-Type: application/problem+json")
	}
	replies := []apptest.Reply{apptest.Say(apptest.Full(cmp.Or(to.status, http.StatusOK), to.problem, lines...))}
	if to.once {
		replies = append(replies, apptest.Say(apptest.Status(http.StatusOK)))
	}
	a.On(id, replies...)
}

func (a app) seen(id string) int { return len(a.Seen(id)) }
