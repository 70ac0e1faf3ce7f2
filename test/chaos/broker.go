package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/console"
	"sidecar/internal/testkit/depth"
)

// node is the broker that scripts/broker.sh has started.
type node struct {
	console.Node
	url     string // with a user that may do everything
	script  string // scripts/broker.sh
	version string
}

// nodesFromEnvironment finds what scripts/broker.sh, or scripts/cluster.sh, says it has started.
func nodesFromEnvironment(script string) ([]*node, error) {
	version := os.Getenv("BROKER_VERSION")
	urls, dirs := strings.Split(os.Getenv("AMQP_URLS"), ","), strings.Fields(os.Getenv("CLUSTER_DIRS"))
	if len(dirs) == 0 {
		urls, dirs = []string{os.Getenv("AMQP_URL")}, strings.Fields(os.Getenv("BROKER_DIR"))
	}
	if len(dirs) == 0 || len(urls) != len(dirs) || urls[0] == "" {
		return nil, errors.New("AMQP_URL and BROKER_DIR are not set: run this with scripts/chaos.sh")
	}
	var nodes []*node
	for i, dir := range dirs {
		nodes = append(nodes, &node{console.Node{Dir: dir, Ctl: filepath.Join(dir, "rabbitmqctl")}, urls[i], script, version})
	}
	return nodes, nil
}

func (n *node) addr() string {
	u, err := url.Parse(n.url)
	if err != nil {
		return ""
	}
	return u.Host
}

// ctl does what `rabbitmqctl args…` would do.
func (n *node) ctl(args ...string) error {
	expression, err := console.Command("/", args...)
	if err == nil {
		_, err = n.Eval(expression)
	}
	return err
}

// count evaluates an Erlang expression whose value is a number.
func (n *node) count(format string, args ...any) (int, error) {
	value, err := n.Eval(fmt.Sprintf(format, args...))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(value)
}

// name is what the other nodes of a cluster call this one.
func (n *node) name() (string, error) {
	text, err := os.ReadFile(filepath.Join(n.Dir, "ports"))
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(text))
	if len(f) == 0 {
		return "", errors.New("the node has no name")
	}
	return "sidecar-" + f[0] + "@localhost", nil
}

// kill ends the node without warning.
func (n *node) kill() error { return n.sh("kill") }

// start boots it again, on the same port with the same data.
func (n *node) start() error { return n.sh("start") }

func (n *node) sh(command string) error { return script(n.script, command, n.Dir) }

// script runs broker.sh or postgres.sh for a directory.
func script(path, command, dir string) error {
	args := []string{command, dir}
	if command == "start" {
		args = append(args, "0")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(path), command, err, out)
	}
	return nil
}

// signal reaches the node's whole process group.
func (n *node) signal(s syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(n.Dir, "pid"))
	if err != nil {
		return fmt.Errorf("the broker's process is not known: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(-pid, s)
}

// theirs is the Erlang list of a value for each connection P of the sidecar of which the name contains a text.
const theirs = `[%s || [{pid, P}, {client_properties, L}] <- rabbit_networking:connection_info_all([pid, client_properties]),
	{<<"connection_name">>, _, Name} <- L, string:find(Name, %s) =/= nomatch]`

// connections counts the sidecar's connections of one kind, of all kinds if it is empty.
func (n *node) connections(kind string) (int, error) {
	return n.count("length("+theirs+")", "P", console.Binary(service+" "+kind))
}

// closeConnections closes the sidecar's connections of one kind as an operator would.
func (n *node) closeConnections(kind string) error {
	closed, err := n.count("length("+theirs+")", `rabbit_networking:close_connection(P, "chaos")`,
		console.Binary(service+" "+kind))
	if err == nil && closed == 0 {
		err = fmt.Errorf("no connection to %s", kind)
	}
	return err
}

// with runs something on a channel of its own.
func (n *node) with(do func(*amqp.Channel) error) error {
	conn, err := amqp.DialConfig(n.url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

// ready counts the messages that wait in queues.
func (n *node) ready(queues ...string) (int, error) {
	sum := 0
	err := n.with(func(ch *amqp.Channel) error {
		for _, q := range queues {
			state, err := depth.Of(ch, q)
			if err != nil {
				return err
			}
			sum += state.Messages
		}
		return nil
	})
	return sum, err
}

// total counts the messages of queues, unacked messages included.
func (n *node) total(queues ...string) (int, error) {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = console.Binary(q)
	}
	return n.count(`lists:sum([N || [{name, {resource, _, _, Name}}, {messages, N}] <-
		rabbit_amqqueue:info_all(<<"/">>, [name, messages]), lists:member(Name, [%s])])`, strings.Join(names, ", "))
}

// consumers counts who consumes from a queue.
func (n *node) consumers(queue string) (count int, err error) {
	err = n.with(func(ch *amqp.Channel) error {
		state, err := depth.Of(ch, queue)
		count = state.Consumers
		return err
	})
	return count, err
}

// branch is the version as TEST_BROKER_VERSION has it, e.g. 4.0.
func (n *node) branch() string {
	f := strings.SplitN(n.version, ".", 3)
	return strings.Join(f[:min(2, len(f))], ".")
}

// window is an error when not all consumers of a queue may hold as many messages as wanted.
func (n *node) window(queue string, want, consumers int) error {
	found, err := n.count(`length([x || C <- rabbit_amqqueue:consumers_all(<<"/">>), {queue_name, {resource, _, _, %s}} <- C,
		{prefetch_count, %d} <- C])`, console.Binary(queue), want)
	if err == nil && found != consumers {
		err = fmt.Errorf("%d consumers with a prefetch of %d", found, want)
	}
	return err
}

func (n *node) user(ctx context.Context, name, password string) error {
	return errors.Join(n.ctl("add_user", name, password), n.ctl("set_permissions", name, ".*", ".*", ".*"), ctx.Err())
}
