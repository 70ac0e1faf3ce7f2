package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// result is all that one execution found, as it is written to result.json.
type result struct {
	Machine  machine              `json:"machine"`
	Drained  []*run               `json:"drained,omitempty"`
	Slow     []*run               `json:"slow,omitempty"`
	Ceilings []float64            `json:"slow_ceiling_messages_per_s,omitempty"`
	Rate     []paced              `json:"rate,omitempty"`
	Start    map[string][]float64 `json:"start_to_first_post_ms,omitempty"`
	Idle     map[string][]idle    `json:"idle,omitempty"`
	Growth   []curve              `json:"growth,omitempty"`
	Profile  []part               `json:"profile,omitempty"`
	Binary   int64                `json:"binary_bytes"`
	Quick    bool                 `json:"quick,omitempty"` // no figures to quote
}

// idle is resident memory at rest.
type idle struct {
	Fresh  int64 `json:"after_start_bytes"`
	Rested int64 `json:"after_burst_bytes"`
	Own    int64 `json:"own_after_burst_bytes"`
}

// machine is what the figures depend on.
type machine struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Go     string `json:"go"`
	Broker string `json:"rabbitmq"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`

	BrokerCPU bool `json:"broker_cpu_known"`
}

func newResult(r *rig, o *options) *result {
	res := &result{Start: map[string][]float64{}, Idle: map[string][]idle{}, Quick: o.quick}
	res.Machine = machine{
		Date: time.Now().UTC().Format(time.DateOnly), Go: runtime.Version(), Broker: r.version, Cores: runtime.NumCPU(),
		CPU: cpuModel(), Commit: commit(r.ctx),
		Kernel: output(r.ctx, "uname", "-sr"), BrokerCPU: r.brokerPID != 0,
	}
	if s, err := os.Stat(o.sidecar); err == nil {
		res.Binary = s.Size()
	}
	return res
}

// commit names the commit that is measured, and says when the files differ, except for those that a run with -docs
// writes.
func commit(ctx context.Context) string {
	name := output(ctx, "git", "describe", "--always")
	if output(ctx, "git", "status", "--porcelain", "-uno", "--", ".", ":!docs", ":!bench/*.json") != "" {
		name += "-dirty"
	}
	return name
}

func output(ctx context.Context, name string, args ...string) string {
	b, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimLeft(strings.TrimSpace(name), ": ")
		}
	}
	return "unknown"
}

// of is the runs of one candidate, in the order of the rounds.
func of(runs []*run, candidate string) (out []*run) {
	for _, r := range runs {
		if r.Candidate == candidate {
			out = append(out, r)
		}
	}
	return out
}

// each is one figure of every run.
func each(runs []*run, figure func(*run) float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = figure(r)
	}
	return out
}

// ratios are those of two lists, round by round: what else the machine did fell on both.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

func rateOf(r *run) float64    { return r.Rate }
func cpuPer(r *run) float64    { return r.per10k(r.CPU) }
func brokerPer(r *run) float64 { return r.per10k(r.Broker) }
func appPer(r *run) float64    { return r.per10k(r.App) }
func peakOf(r *run) float64    { return mib(r.Peak) }

// sortedKeys are the names in either map.
func sortedKeys(starts map[string][]float64, idles map[string][]idle) []string {
	names := slices.Concat(slices.Collect(maps.Keys(starts)), slices.Collect(maps.Keys(idles)))
	slices.Sort(names)
	return slices.Compact(names)
}
