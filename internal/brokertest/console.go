package brokertest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// actor is the name under which the broker logs what the tests change.
const actor = "tests"

// call is the Erlang expression that calls a function with texts. A boolean or a number needs no call.
func call(function string, texts ...string) string {
	args := make([]string, len(texts))
	for i, s := range texts {
		args[i] = binaryOf(s)
	}
	return function + "(" + strings.Join(args, ", ") + ")"
}

// binaryOf is a text as an Erlang binary.
func binaryOf(s string) string {
	return `<<"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"/utf8>>`
}

// eval evaluates an Erlang expression in the node, without the full stop, and returns its value as text. It asks the
// console that scripts/broker-console.erl opens, in about a millisecond; a node in a container has none that could be
// reached, and rabbitmqctl is run, in about a second.
func (n *node) eval(expression string) (string, error) {
	port, err := os.ReadFile(filepath.Join(n.dir, "console"))
	if errors.Is(err, os.ErrNotExist) {
		out, err := n.ctl("eval", expression+".")
		return strings.TrimSpace(out), err
	}
	if err != nil {
		return "", err
	}
	cookie, err := os.ReadFile(filepath.Join(n.dir, ".erlang.cookie"))
	if err != nil {
		return "", err
	}
	conn, err := dialConsole("127.0.0.1:" + strings.TrimSpace(string(port)))
	if err != nil {
		return "", fmt.Errorf("connect to the console of the broker: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(append(framed(string(cookie)), framed(expression+".")...)); err != nil {
		return "", err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return "", fmt.Errorf("read from the console of the broker: %w", err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return "", fmt.Errorf("read from the console of the broker: %w", err)
	}
	state, value, _ := strings.Cut(string(answer), " ")
	if state != "ok" {
		return "", errors.New(value)
	}
	return value, nil
}

// dialConsole tries for some seconds: the console of a node opens a moment before or after its AMQP port.
func dialConsole(addr string) (conn net.Conn, err error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("tcp", addr); err == nil || time.Now().After(end) {
			return conn, err
		}
	}
}

func framed(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// must is eval for what has to succeed. Erlang functions report many failures as a value {error, Reason}.
func (n *node) must(t testing.TB, expression string) string {
	t.Helper()
	value, err := n.eval(expression)
	if err == nil && strings.HasPrefix(value, "{error") {
		err = errors.New(value)
	}
	if err != nil {
		t.Fatalf("in the broker, %s: %v", expression, err)
	}
	return value
}

// ctl runs rabbitmqctl, which boots an Erlang machine: 2 s, and half of that on a core.
func (n *node) ctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, n.ctlPath, append([]string{"-q"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Ctl does on the test's node what `rabbitmqctl args…` would do, for the commands that are listed below. It prints nothing;
// what lists is Rows.
func Ctl(t testing.TB, args ...string) {
	t.Helper()
	p := placeOf(t)
	p.node.must(t, p.command(t, args))
}

// CtlLater does the same when the test ends, however it ends.
func CtlLater(t testing.TB, args ...string) {
	t.Helper()
	p := placeOf(t)
	expression := p.command(t, args)
	t.Cleanup(func() {
		if _, err := p.node.eval(expression); err != nil {
			t.Errorf("in the broker, %s: %v", expression, err)
		}
	})
}

// Eval evaluates an Erlang expression in the test's node and returns its value as text.
func Eval(t testing.TB, expression string) string {
	t.Helper()
	return placeOf(t).node.must(t, strings.TrimSuffix(strings.TrimSpace(expression), "."))
}

// command translates a command of rabbitmqctl. Its option -p is the virtual host; without it that of the test.
func (p *place) command(t testing.TB, args []string) string {
	t.Helper()
	vhost, rest := p.vhost, args
	if i := slices.Index(args, "-p"); i >= 0 && i+1 < len(args) {
		vhost, rest = args[i+1], append(append([]string{}, args[:i]...), args[i+2:]...)
	}
	name, texts := rest[0], rest[1:]
	const users = "rabbit_auth_backend_internal:"
	switch {
	case name == "add_vhost" && len(texts) == 1:
		return call("rabbit_vhost:add", texts[0], actor)
	case name == "delete_vhost" && len(texts) == 1:
		return call("rabbit_vhost:delete", texts[0], actor)
	case name == "add_user" && len(texts) == 2, name == "change_password" && len(texts) == 2, name == "delete_user" && len(texts) == 1:
		return call(users+name, append(texts, actor)...)
	case name == "set_permissions" && len(texts) == 4:
		return call(users+name, texts[0], vhost, texts[1], texts[2], texts[3], actor)
	case name == "set_topic_permissions" && len(texts) == 4:
		return call(users+name, texts[0], vhost, texts[1], texts[2], texts[3], actor)
	case name == "close_all_user_connections" && len(texts) == 2:
		return "rabbit_networking:close_all_user_connections(" + binaryOf(texts[0]) + ", " + strconv.Quote(texts[1]) + ")"
	case name == "set_parameter" && len(texts) == 3:
		return call("rabbit_runtime_parameters:parse_set", vhost, texts[0], texts[1], texts[2], actor)
	case name == "set_policy" && len(texts) == 3:
		return "rabbit_policy:parse_set(" + binaryOf(vhost) + ", " + binaryOf(texts[0]) + ", " + binaryOf(texts[1]) + ", " +
			binaryOf(texts[2]) + `, "0", <<"all">>, ` + binaryOf(actor) + ")"
	case name == "stop_app" && len(texts) == 0:
		return "rabbit:stop()"
	case name == "start_app" && len(texts) == 0:
		return "rabbit:start()"
	}
	t.Fatalf("brokertest.Ctl does not know %v: add it", args)
	return ""
}
