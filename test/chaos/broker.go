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
)

// node is the broker that scripts/broker.sh has started.
type node struct {
	url     string // with a user that may do everything
	dir     string
	ctlPath string
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
		nodes = append(nodes, &node{url: urls[i], dir: dir, ctlPath: filepath.Join(dir, "rabbitmqctl"), version: version, script: script})
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

func (n *node) ctl(args ...string) (string, error) {
	out, err := exec.Command(n.ctlPath, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// name is what the other nodes of a cluster call this one.
func (n *node) name() (string, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, "ports"))
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

func (n *node) sh(command string) error {
	args := []string{command, n.dir}
	if command == "start" {
		args = append(args, "0")
	}
	out, err := exec.Command(n.script, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("broker.sh %s: %w: %s", command, err, out)
	}
	return nil
}

// signal reaches the node's whole process group.
func (n *node) signal(s syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(n.dir, "pid"))
	if err != nil {
		return fmt.Errorf("the broker's process is not known: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(-pid, s)
}

// closeConnections closes the sidecar's connections of one kind as an operator would.
func (n *node) closeConnections(kind string) error {
	list, err := n.ctl("-q", "list_connections", "pid", "client_properties")
	if err != nil {
		return err
	}
	closed := 0
	for line := range strings.Lines(list) {
		if pid, rest, ok := strings.Cut(line, "\t"); ok && strings.Contains(rest, service+" "+kind) {
			if _, err := n.ctl("close_connection", pid, "chaos"); err != nil {
				return err
			}
			closed++
		}
	}
	if closed == 0 {
		return fmt.Errorf("no connection to %s", kind)
	}
	return nil
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
			state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
			if err != nil {
				return err
			}
			sum += state.Messages
		}
		return nil
	})
	return sum, err
}

// total counts the messages of queues, those that are unacked too.
func (n *node) total(queues ...string) (int, error) {
	list, err := n.ctl("-q", "list_queues", "name", "messages")
	if err != nil {
		return 0, err
	}
	sum := 0
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		for _, q := range queues {
			if len(f) == 2 && f[0] == q {
				count, err := strconv.Atoi(f[1])
				if err != nil {
					return 0, err
				}
				sum += count
			}
		}
	}
	return sum, nil
}

// consumers counts who consumes from a queue.
func (n *node) consumers(queue string) (count int, err error) {
	err = n.with(func(ch *amqp.Channel) error {
		state, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
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

// window is an error when the consumer of a queue may hold another number of messages than want.
func (n *node) window(queue string, want int) error {
	out, err := n.ctl("-q", "list_consumers", "queue_name", "prefetch_count")
	if err != nil {
		return err
	}
	if line := fmt.Sprintf("%s\t%d\n", queue, want); !strings.Contains(out, line) {
		return fmt.Errorf("not %q: %q", line, out)
	}
	return nil
}

func (n *node) user(ctx context.Context, name, password string) error {
	if _, err := n.ctl("add_user", name, password); err != nil {
		return err
	}
	_, err := n.ctl("set_permissions", "-p", "/", name, ".*", ".*", ".*")
	return errors.Join(err, ctx.Err())
}
