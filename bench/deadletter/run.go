package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sidecar/internal/testkit/console" //nolint:depguard // rabbitmqctl boots for a second, which would be measured
)

// timed runs a program and returns what it took.
func timed(path string, args []string, env ...string) (result, error) {
	cmd := exec.CommandContext(context.Background(), path, args...) // #nosec G204 -- what the flags say
	cmd.Env = env
	var problems strings.Builder
	cmd.Stdout, cmd.Stderr = nil, &problems
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, problems.String())
	}
	r := result{took: time.Since(begun), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.memory = u.Maxrss
	}
	return r, nil
}

func (b *broker) sidecar(path string, args []string) (result, error) {
	return timed(path, append([]string{"dlq"}, args...),
		"SIDECAR_SERVICE="+b.service, "SIDECAR_AMQP_URL="+b.url, "SIDECAR_QUEUE_TYPE="+b.kind)
}

// shovel begins a dynamic shovel, as `rabbitmqctl set_parameter shovel NAME DEFINITION` does, and waits until the
// messages have left one queue and arrived in the other. The shovel deletes itself then.
func (b *broker) shovel(n int) (result, error) {
	uri := strings.TrimSuffix(b.url, "/") + "/%2f" // to the plugin a bare slash is the virtual host without a name
	definition, err := json.Marshal(map[string]any{
		"src-protocol": "amqp091", "src-uri": uri, "src-queue": b.dlq(), "src-delete-after": "queue-length",
		"src-prefetch-count": 1000, "ack-mode": "on-confirm",
		"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": b.queue(),
	})
	if err != nil {
		return result{}, err
	}
	set, err := console.Command("/", "set_parameter", "shovel", b.service, string(definition))
	if err != nil {
		return result{}, err
	}
	begun := time.Now()
	node := console.Node{Dir: os.Getenv("BROKER_DIR"), Ctl: os.Getenv("BROKER_CTL")}
	if _, err := node.Eval(set); err != nil {
		return result{}, err
	}
	err = b.allMoved(n)
	return result{took: time.Since(begun)}, err
}

// counted adds the CPU time of the broker, from when it has nothing to do until it has nothing to do again: it writes
// to its files after the last answer, too.
func (b *broker) counted(do func() (result, error)) (result, error) {
	before, err := b.idle()
	if err != nil {
		return result{}, err
	}
	r, err := do()
	if err != nil {
		return result{}, err
	}
	after, err := b.idle()
	r.broker = after - before
	return r, err
}

// tick is the resolution of the operating system's accounting: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// idle waits until the broker hardly computes, ten seconds at most, and returns the CPU time that it has used so far.
func (b *broker) idle() (cpu time.Duration, err error) {
	for range 50 {
		before := cpu
		if cpu, err = groupCPU(); err != nil || before > 0 && cpu-before <= tick {
			return cpu, err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return cpu, nil
}

// groupCPU is the CPU time, user and system, of the broker's group of processes; 0 if the broker is from elsewhere.
func groupCPU() (sum time.Duration, err error) {
	group, err := os.ReadFile(filepath.Join(os.Getenv("BROKER_DIR"), "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	stats, globErr := filepath.Glob("/proc/[0-9]*/stat")
	if err = errors.Join(err, globErr); err != nil {
		return 0, err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name in brackets may hold anything, spaces and brackets included.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 15 || !bytes.Equal(f[2], bytes.TrimSpace(group)) {
			continue
		}
		for _, ticks := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(string(ticks))
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}
