// Package console evaluates Erlang expressions inside a RabbitMQ node that scripts/broker.sh has started, without a
// boot of an Erlang machine for each, as rabbitmqctl needs. It is for tests.
package console

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
	"time"
)

// Actor is the name under which the broker logs what the tests change.
const Actor = "tests"

// Node is a RabbitMQ node.
type Node struct {
	Dir string // of scripts/broker.sh
	Ctl string // path of rabbitmqctl
}

// Call is the Erlang expression that calls a function with texts. A boolean or a number needs no Call.
func Call(function string, texts ...string) string {
	args := make([]string, len(texts))
	for i, s := range texts {
		args[i] = Binary(s)
	}
	return function + "(" + strings.Join(args, ", ") + ")"
}

// Binary is a text as an Erlang binary.
func Binary(s string) string {
	return `<<"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"/utf8>>`
}

// Eval evaluates an Erlang expression in the node, without the full stop, and returns its value as text. A value
// {error, Reason} is an error. It asks the console that scripts/broker-console.erl opens, in about a millisecond; a
// node in a container has no console that can be reached, and rabbitmqctl is run, in about a second.
func (n Node) Eval(expression string) (string, error) {
	value, err := n.eval(expression)
	if err == nil && strings.HasPrefix(value, "{error") {
		err = errors.New(value)
	}
	if err != nil {
		return "", fmt.Errorf("in the broker, %s: %w", expression, err)
	}
	return value, nil
}

// patience is how long a node may take for an answer. Adding a virtual host has taken over a minute on a machine that
// was busy with the suite and other things. It only ends what hangs.
const patience = 5 * time.Minute

func (n Node) eval(expression string) (string, error) {
	port, err := os.ReadFile(filepath.Join(n.Dir, "console"))
	if errors.Is(err, os.ErrNotExist) {
		out, err := n.ctl("eval", expression+".")
		return strings.TrimSpace(out), err
	}
	if err != nil {
		return "", err
	}
	cookie, err := os.ReadFile(filepath.Join(n.Dir, ".erlang.cookie"))
	if err != nil {
		return "", err
	}
	conn, err := dialConsole("127.0.0.1:" + strings.TrimSpace(string(port)))
	if err != nil {
		return "", fmt.Errorf("connect to the console of the broker: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
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

// ctl runs rabbitmqctl, which boots an Erlang machine: 2 s, and half of that on a core.
func (n Node) ctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, n.Ctl, append([]string{"-q"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Command returns the expression for a command of rabbitmqctl. Its option -p replaces vhost.
func Command(vhost string, args ...string) (string, error) {
	rest := args
	if i := slices.Index(args, "-p"); i >= 0 && i+1 < len(args) {
		vhost, rest = args[i+1], append(append([]string{}, args[:i]...), args[i+2:]...)
	}
	name, texts := rest[0], rest[1:]
	const users = "rabbit_auth_backend_internal:"
	switch {
	case name == "add_vhost" && len(texts) == 1:
		return Call("rabbit_vhost:add", texts[0], Actor), nil
	case name == "delete_vhost" && len(texts) == 1:
		return Call("rabbit_vhost:delete", texts[0], Actor), nil
	case name == "add_user" && len(texts) == 2, name == "change_password" && len(texts) == 2, name == "delete_user" &&
		len(texts) == 1, name == "set_user_limits" && len(texts) == 2:
		return Call(users+name, append(texts, Actor)...), nil
	case name == "set_permissions" && len(texts) == 4:
		return Call(users+name, texts[0], vhost, texts[1], texts[2], texts[3], Actor), nil
	case name == "set_topic_permissions" && len(texts) == 4:
		return Call(users+name, texts[0], vhost, texts[1], texts[2], texts[3], Actor), nil
	case name == "close_all_user_connections" && len(texts) == 2:
		// One that ends by itself at that moment is closed, too.
		return "try rabbit_networking:close_all_user_connections(" + Binary(texts[0]) + ", " + strconv.Quote(texts[1]) +
			") catch exit:{normal, _} -> ok end", nil
	case name == "set_parameter" && len(texts) == 3:
		return Call("rabbit_runtime_parameters:parse_set", vhost, texts[0], texts[1], texts[2], Actor), nil
	case name == "set_policy" && len(texts) == 3:
		return "rabbit_policy:parse_set(" + Binary(vhost) + ", " + Binary(texts[0]) + ", " + Binary(texts[1]) + ", " +
			Binary(texts[2]) + `, "0", <<"all">>, ` + Binary(Actor) + ")", nil
	case name == "clear_policy" && len(texts) == 1:
		return Call("rabbit_policy:delete", vhost, texts[0], Actor), nil
	case name == "set_operator_policy" && len(texts) == 3:
		return "rabbit_policy:parse_set_op(" + Binary(vhost) + ", " + Binary(texts[0]) + ", " + Binary(texts[1]) + ", " +
			Binary(texts[2]) + `, "0", <<"all">>, ` + Binary(Actor) + ")", nil
	case name == "set_user_tags" && len(texts) == 2:
		return users + "set_tags(" + Binary(texts[0]) + ", [" + texts[1] + "], " + Binary(Actor) + ")", nil
	case name == "set_vm_memory_high_watermark" && len(texts) == 1:
		return "vm_memory_monitor:set_vm_memory_high_watermark(" + texts[0] + ")", nil
	case name == "stop_app" && len(texts) == 0:
		return "rabbit:stop()", nil
	case name == "start_app" && len(texts) == 0:
		return "rabbit:start()", nil
	}
	return "", fmt.Errorf("console.Command does not know %v: add it", args)
}
