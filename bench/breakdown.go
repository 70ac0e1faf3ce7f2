package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// part is a share of the CPU samples.
type part struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// rule puts a sample into a part when its stack holds a frame that begins with one of what, and one that begins with
// one of within. An empty list asks for nothing. The first rule that fits wins.
type rule struct {
	name         string
	what, within []string
}

func breakdownRules() []rule {
	system := []string{"internal/runtime/syscall", "syscall."}
	return []rule{
		{"system call: write a request to the app", system, []string{"sidecar/internal/http1.(*Exchange).write"}},
		{"system call: read an answer from the app", system, []string{"sidecar/internal/http1.(*Answer).Read"}},
		{"system call: check an idle connection before it is used again", system,
			[]string{"sidecar/internal/http1.(*conn).quiet"}},
		{"system call: write acks to the broker", system, []string{"sidecar/internal/amqpwire.(*Wire).Write"}},
		{"system call: read deliveries from the broker", system, []string{"sidecar/internal/amqpwire.(*Wire).receive"}},
		{"memory: allocation and garbage collection", []string{
			"runtime.mallocgc", "runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge",
			"runtime.gcDrain", "runtime.(*mheap)", "runtime.(*mcache)", "runtime.growslice", "runtime.newobject",
			"runtime.makeslice",
		}, nil},
		{"Go scheduler: network poller", []string{"runtime.netpoll"}, nil},
		{"Go scheduler: its monitor thread", []string{"runtime.sysmon"}, nil},
		{"Go scheduler: switch goroutines, sleep and wake threads", []string{
			"runtime.schedule", "runtime.mcall", "runtime.park_m", "runtime.findRunnable", "runtime.futex", "runtime.ready",
			"runtime.goready", "runtime.wakep", "runtime.startm", "runtime.mstart", "runtime.gosched", "runtime.goschedImpl",
		}, nil},
		{"HTTP: write the request's head", nil, []string{"sidecar/internal/dispatch.(*request)"}},
		{"HTTP: parse the answer", nil, []string{"sidecar/internal/http1.(*Answer)", "sidecar/internal/dispatch.(*answer)"}},
		{"HTTP: metrics", nil, []string{"sidecar/internal/dispatch.(*metrics)"}},
		{"HTTP: pool, deadlines, the rest", nil, []string{"sidecar/internal/http1.", "sidecar/internal/dispatch."}},
		{"AMQP: take deliveries off the stream", nil, []string{"sidecar/internal/amqpwire.(*Wire).Read"}},
		{"AMQP: client library", nil, []string{"github.com/rabbitmq/amqp091-go."}},
		{"trace context", nil, []string{"sidecar/internal/telemetry."}},
		{"hand over: deliveries to workers", nil, []string{"sidecar/internal/consume.(*run).pump"}},
		{"settle: coalesce acks", nil, []string{"sidecar/internal/consume.(*settler)"}},
		{"judge, count, settle", nil, []string{"sidecar/internal/consume."}},
	}
}

const otherPart = "other"

// breakdownOf attributes every sample of a CPU profile to one part, largest first within the order of the rules.
func breakdownOf(ctx context.Context, file string) ([]part, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-traces", file)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w\n%s", err, problems.String())
	}
	return breakdown(bytes.NewReader(out))
}

// breakdown reads what `go tool pprof -traces` prints: blocks between lines of dashes, the value in front of the
// innermost frame, one frame a line.
func breakdown(traces io.Reader) ([]part, error) {
	rules := breakdownRules()
	sums := make([]time.Duration, len(rules)+1)
	var total time.Duration
	var value time.Duration
	var stack []string
	flush := func() {
		if len(stack) > 0 {
			sums[attribute(rules, stack)] += value
			total += value
		}
		stack = nil
	}
	inside := false
	lines := bufio.NewScanner(traces)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(strings.TrimSpace(line), "-----------+") {
			flush()
			inside = true
			continue
		}
		f := strings.Fields(line)
		if !inside || len(f) == 0 {
			continue
		}
		if len(stack) == 0 {
			d, err := time.ParseDuration(f[0])
			if err != nil {
				return nil, fmt.Errorf("no sample in %q: %w", line, err)
			}
			if len(f) < 2 {
				return nil, fmt.Errorf("no frame in %q", line)
			}
			value, f = d, f[1:]
		}
		stack = append(stack, f[0])
	}
	flush()
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if total == 0 {
		return nil, nil
	}
	var parts []part
	for i, sum := range sums {
		name := otherPart
		if i < len(rules) {
			name = rules[i].name
		}
		if sum > 0 {
			parts = append(parts, part{name, float64(sum) / float64(total)})
		}
	}
	return parts, nil
}

// attribute is the index of the first rule that fits, or one more than the last.
func attribute(rules []rule, stack []string) int {
	has := func(prefixes []string) bool {
		for _, frame := range stack {
			for _, p := range prefixes {
				if strings.HasPrefix(frame, p) {
					return true
				}
			}
		}
		return false
	}
	for i, r := range rules {
		if (r.what == nil || has(r.what)) && (r.within == nil || has(r.within)) {
			return i
		}
	}
	return len(rules)
}
