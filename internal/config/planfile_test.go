package config

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestPlanFile: the file's content is kept as it was at the start, and is shown as the origin of what it says.
func TestPlanFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plan.json")
	write(t, file, "{}\n")
	c := load(t, "SIDECAR_PLAN_FILE="+file, "SIDECAR_TOPOLOGY_MODE=verify", "SIDECAR_PARK_ON_STATUS=400")
	if string(c.Plan) != "{}\n" {
		t.Errorf("read %q", c.Plan)
	}
	shows(t, c, []Setting{
		{Name: "SIDECAR_PLAN_FILE", Value: file, Origin: "environment"},
		{Name: "SIDECAR_TOPOLOGY_MODE", Value: "verify", Origin: "environment"},
		{Name: "SIDECAR_TOPOLOGY", Value: "$.name", Origin: "file:" + file},
		{Name: "SIDECAR_QUEUE", Value: "$.queue", Origin: "file:" + file},
		{Name: "SIDECAR_RETRY_DELAYS", Value: "$.waits[].delay", Origin: "file:" + file},
		{Name: "SIDECAR_MESSAGE_TTL", Value: "$.queues[].arguments.x-message-ttl", Origin: "file:" + file},
	})
	if load(t).Plan != nil {
		t.Error("a plan without a file")
	}
}

// TestPlanFilesThatCannotBeRead: a plan's file is read like any other.
func TestPlanFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large, pipe := filepath.Join(dir, "large.json"), filepath.Join(dir, "pipe.json")
	write(t, large, strings.Repeat(" ", 1<<20+1))
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	for path, says := range map[string]string{
		large: "larger than 1MiB", pipe: "must be a regular file", dir: "must be a regular file", filepath.Join(dir, "none.json"): "no such file",
	} {
		refuseSaying(t, says, "SIDECAR_PLAN_FILE", "SIDECAR_PLAN_FILE="+path)
	}
}

// TestPlanFileReplacesVariables: every variable that only makes a plan is refused, with its place in the file.
func TestPlanFileReplacesVariables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plan.json")
	write(t, file, "{}\n")
	variables := []string{
		"SIDECAR_TOPOLOGY=per-queue", "SIDECAR_PREFIX=p", "SIDECAR_EXCHANGE=e", "SIDECAR_EXCHANGE_TYPE=topic", "SIDECAR_QUEUE=q",
		"SIDECAR_BINDINGS=e:k", "SIDECAR_RETRY_EXCHANGE=r", "SIDECAR_RETRY_QUEUE=r", "SIDECAR_DLX=d", "SIDECAR_DLQ=d",
		"SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_MESSAGE_TTL=1h", "SIDECAR_DEAD_LETTER=disabled", "SIDECAR_MAX_RETRIES=1",
		"SIDECAR_RETRY_DELAY=1s", "SIDECAR_RETRY_DELAYS=1s", "SIDECAR_QUEUE_ARGUMENTS=x-max-priority=5", "SIDECAR_PARTITIONS=8",
	}
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		refuseSaying(t, "cannot be combined with SIDECAR_PLAN_FILE: the file says it in $.", name, v, "SIDECAR_PLAN_FILE="+file)
	}
	for _, s := range Describe() {
		for _, v := range s.Variables {
			listed := strings.Contains(strings.Join(variables, " ")+" ", v.Name+"=")
			if (v.Tag.Get("plan") != "") != listed {
				t.Errorf("%s: a plan's file says it, or not", v.Name)
			}
		}
	}
}
