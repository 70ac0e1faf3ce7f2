package brokertest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/console"
)

// node is one RabbitMQ that scripts/broker.sh has started.
type node struct {
	console.Node
	url *url.URL
}

func newNode(amqpURL, ctlPath, dir string) (*node, error) {
	if amqpURL == "" || ctlPath == "" || dir == "" {
		return nil, errors.New("AMQP_URL, BROKER_CTL or BROKER_DIR is not set")
	}
	u, err := url.Parse(amqpURL)
	if err != nil || u.User == nil {
		return nil, errors.New("AMQP_URL is not a URL with a user")
	}
	return &node{console.Node{Dir: dir, Ctl: ctlPath}, u}, nil
}

// Node is a RabbitMQ that only this test uses until it ends. The test may kill it, raise alarms and change its
// settings.
type Node struct {
	n       *node
	t       testing.TB
	version string // empty: that of the shared node
	frozen  bool
}

// OwnNode waits for its turn to use the second node, which the first such test boots. From then on URL, Ctl and User of
// this test and its subtests mean that node. Call it before them, and before anything that connects to the broker.
func OwnNode(t testing.TB) *Node {
	t.Helper()
	return borrow(t, "own", "", syscall.LOCK_EX)
}

// borrow gives the test its place on the node in a directory beside the data of the shared node. how is LOCK_SH for a
// test that leaves the node as it is.
func borrow(t testing.TB, name, version string, how int) *Node {
	t.Helper()
	n := &Node{t: t, version: version}
	if p := existing(t); p != nil && (p.node != sharedNode(t) || p.test == t.Name()) {
		t.Fatal("a node has to be chosen once, before URL")
	}
	dir := filepath.Join(sharedNode(t).Dir, name)
	began := time.Now()
	held := n.lock(dir+".lock", how)
	t.Cleanup(func() { _ = held.Close() })
	t.Logf("waited %v for the node %s", time.Since(began).Round(time.Millisecond), name)
	n.n = n.start(dir)
	if how == syscall.LOCK_EX {
		n.calm()
		t.Cleanup(func() {
			n.Thaw()
			n.Start()
			n.calm()
		})
	}
	newPlace(t, n.n, "")
	return n
}

// lock waits for a lock, which the processes of other packages may hold as well. Closing the file ends it.
func (n *Node) lock(path string, how int) *os.File {
	n.t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // below the broker's own directory
	for err == nil {
		if err = syscall.Flock(int(f.Fd()), how); err == nil {
			break
		} else if errors.Is(err, syscall.EINTR) {
			err = nil
		}
	}
	if err != nil {
		n.t.Fatalf("wait for the node: %v", err)
	}
	return f
}

// Start boots the node again if it does not run. Port and data stay the same.
func (n *Node) Start() {
	n.t.Helper()
	n.start(n.n.Dir)
}

func (n *Node) start(dir string) *node {
	n.t.Helper()
	defer n.lock(dir+".start", syscall.LOCK_EX).Close() //nolint:errcheck // it only ends the lock
	out := n.script("start", dir, "0")
	var amqpURL string
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "export AMQP_URL="); ok {
			amqpURL = v
		}
	}
	own, err := newNode(amqpURL, filepath.Join(dir, "rabbitmqctl"), dir)
	if err != nil {
		n.t.Fatalf("broker.sh start printed %q: %v", out, err)
	}
	return own
}

// Kill ends the node without warning.
func (n *Node) Kill() { n.t.Helper(); n.script("kill", n.n.Dir); n.frozen = false }

// Freeze stops the node's processes until Thaw or the end of the test.
func (n *Node) Freeze() { n.t.Helper(); n.script("freeze", n.n.Dir); n.frozen = true }

// Thaw lets a frozen node run again.
func (n *Node) Thaw() {
	n.t.Helper()
	if n.frozen {
		n.script("thaw", n.n.Dir)
		n.frozen = false
	}
}

func (n *Node) script(args ...string) string {
	n.t.Helper()
	path := os.Getenv("BROKER_SCRIPT")
	if path == "" {
		n.t.Fatal("BROKER_SCRIPT is not set: use make test PKG=…, or scripts/broker.sh run 0 go test …")
	}
	cmd := exec.Command(path, args...)
	if n.version != "" { // from wherever that version comes, whatever the shared node is
		cmd.Env = append(os.Environ(), "TEST_BROKER_VERSION="+n.version, "TEST_BROKER=", "TEST_BROKER_IMAGE=")
	}
	out, err := cmd.Output()
	if err != nil {
		text := ""
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			text = string(failed.Stderr)
		}
		n.t.Fatalf("broker.sh %s (BROKER_SCRIPT): %v\n%s", args[0], err, text)
	}
	return string(out)
}

// Alarm raises the memory alarm: the node stops reading from connections that publish. It ends with the test, or when
// the returned function is called.
func (n *Node) Alarm() (calm func()) {
	n.t.Helper()
	n.watermark("0.0000001", true)
	return n.calm
}

func (n *Node) calm() { n.t.Helper(); n.watermark("0.6", false) }

// watermark returns after the node has notified its connections of the start or end of the alarm.
func (n *Node) watermark(fraction string, alarm bool) {
	n.t.Helper()
	n.n.must(n.t, "vm_memory_monitor:set_vm_memory_high_watermark("+fraction+")")
	Eventually(n.t, time.Minute, "the memory alarm has changed", func() bool {
		return n.n.must(n.t, "[] =/= [A || {{resource_limit, memory, _}, _} = A <- "+
			"rabbit_alarm:get_alarms()]") == strconv.FormatBool(alarm)
	})
}

// MaxSize makes the node refuse bodies larger than that, in bytes. Channels that are open already keep the limit that
// they have.
func (n *Node) MaxSize(bytes int) {
	n.t.Helper()
	n.set("max_message_size", bytes)
	// Versions from 3.12 on read it from here.
	n.n.must(n.t, fmt.Sprintf("persistent_term:put(max_message_size, %d)", bytes))
}

// ConsumerTimeout makes the node take back a delivery that is unacked for longer than timeout; it checks every tick.
// Both are in milliseconds and hold for channels that are opened from now on.
func (n *Node) ConsumerTimeout(timeout, tick int) {
	n.t.Helper()
	n.set("consumer_timeout", timeout)
	n.set("channel_tick_interval", tick)
}

// Heartbeat makes the node ask clients for heartbeats of that many seconds, on connections that are opened from now on.
func (n *Node) Heartbeat(seconds int) {
	n.t.Helper()
	n.set("heartbeat", seconds)
}

// set changes a setting of the application rabbit until the test ends.
func (n *Node) set(name string, value int) {
	n.t.Helper()
	was := n.n.must(n.t, "{ok, V} = application:get_env(rabbit, "+name+"), V")
	n.n.must(n.t, fmt.Sprintf("application:set_env(rabbit, %s, %d)", name, value))
	n.t.Cleanup(func() {
		n.Thaw()
		n.Start()
		n.n.must(n.t, "application:set_env(rabbit, "+name+", "+was+")")
		if name == "max_message_size" {
			n.n.must(n.t, "persistent_term:put(max_message_size, "+was+")")
		}
	})
}
