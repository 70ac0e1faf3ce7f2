package app

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// planFile writes the plan of a configuration, after change, into a file and returns the variable that names it.
func planFile(t *testing.T, cfg *config.Config, change func(plan map[string]any)) string {
	t.Helper()
	text, err := RenderPlan(cfg, "json")
	if err != nil {
		t.Fatal(err)
	}
	plan := map[string]any{}
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(plan)
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return "SIDECAR_PLAN_FILE=" + path
}

// TestPlanFromFile: with the printed plan as a file every command shows the same, in every mode.
func TestPlanFromFile(t *testing.T) {
	t.Parallel()
	for _, preset := range [][]string{
		{"SIDECAR_TOPOLOGY=fanout"}, {"SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_QUEUE_TYPE=quorum"},
		{"SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled"},
	} {
		for _, mode := range []string{"declare", "verify", "none"} {
			mode = "SIDECAR_TOPOLOGY_MODE=" + mode
			cfg, err := judged(append(preset, mode)...)
			if err != nil {
				t.Fatal(err)
			}
			fromFile, err := judged(planFile(t, cfg, nil), mode)
			if err != nil {
				t.Fatal(err)
			}
			for _, format := range PlanFormats {
				want, err := RenderPlan(cfg, format)
				if got, errFile := RenderPlan(fromFile, format); err != nil || errFile != nil || got != want {
					t.Errorf("%v %s %s: %v %v\n%s", preset, mode, format, err, errFile, got)
				}
			}
			want, err := Explain(cfg, Question{Status: 503, RetryAfter: -1})
			if got, errFile := Explain(fromFile, Question{Status: 503, RetryAfter: -1}); err != nil || errFile != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v %v: %v %v\n%v", preset, mode, err, errFile, got)
			}
			planned, filed := must.Get(newPlan(cfg))(t), must.Get(newPlan(fromFile))(t)
			if got, want := mainExchange(fromFile, filed), mainExchange(cfg, planned); got != want && preset[0] != "SIDECAR_TOPOLOGY=dead-letter" {
				t.Errorf("%v: main exchange %q, want %q", preset, got, want)
			}
		}
	}
}

// TestPlanFileWarnings: no warning asks for a variable that cannot be set.
func TestPlanFileWarnings(t *testing.T) {
	t.Parallel()
	for _, preset := range [][]string{
		nil, {"SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_DLQ=d"},
		{"SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled"},
	} {
		cfg, err := judged(preset...)
		if err != nil {
			t.Fatal(err)
		}
		fromFile, err := judged(planFile(t, cfg, nil))
		if err != nil {
			t.Fatal(err)
		}
		values, warned, err := PresetValues(fromFile)
		if err != nil || values != nil || len(warned) == 0 || strings.Contains(strings.Join(warned, "\n"), "SIDECAR_") {
			t.Errorf("%v: %v %v %q", preset, err, values, warned)
		}
	}
}

// TestBrokenPlanFile: all problems of the file are among those of the variables, a line each.
func TestBrokenPlanFile(t *testing.T) {
	t.Parallel()
	cfg, err := judged()
	if err != nil {
		t.Fatal(err)
	}
	file := planFile(t, cfg, func(p map[string]any) {
		p["max_retries"], p["queue"], p["tiers"] = 1.5, "other", true
	})
	_, err = judged(file, "SIDECAR_QUEUE=q", "SIDECAR_LOG_LEVEL=loud")
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	_, path, _ := strings.Cut(file, "=")
	want := []string{
		`SIDECAR_PLAN_FILE="` + path + `": $.max_retries: 1.5 is not a whole number`,
		`SIDECAR_PLAN_FILE="` + path + `": $.tiers: unknown field`,
		`SIDECAR_PLAN_FILE="` + path + `": $.queue: the service's queue "other" is not in the plan`,
		`SIDECAR_QUEUE="q": cannot be combined with SIDECAR_PLAN_FILE: the file says it in $.queue; allowed: `,
		`SIDECAR_LOG_LEVEL="loud": not one of the words`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("%s\nwant %s", lines[i], w)
		}
	}
	refused(t, "no such file", "SIDECAR_PLAN_FILE", "SIDECAR_PLAN_FILE=/none/plan.json")
	unjudged, err := config.Load([]string{file, "SIDECAR_SERVICE=wms-cincout"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range PlanFormats {
		if _, err := RenderPlan(unjudged, format); err == nil || !strings.Contains(err.Error(), "$.queue") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestPlanFileWithoutBindings: what the app publishes without saying where goes to the default exchange.
func TestPlanFileWithoutBindings(t *testing.T) {
	t.Parallel()
	cfg, err := judged("SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b")
	if err != nil {
		t.Fatal(err)
	}
	fromFile, err := judged(planFile(t, cfg, func(p map[string]any) { p["bindings"], p["exchanges"] = []any{}, []any{} }))
	if err != nil {
		t.Fatal(err)
	}
	p := must.Get(newPlan(fromFile))(t)
	if x := mainExchange(fromFile, p); x != "" {
		t.Errorf("main exchange %q", x)
	}
	if p.Preset != topology.PresetDelayLadder || p.Service != "wms-cincout" {
		t.Errorf("%+v", p)
	}
}

// TestRunAPlanFromAFile: the objects of a file are declared, judged and used, by the commands and by the sidecar.
func TestRunAPlanFromAFile(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Amqp-Message-Id") == "bad" {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(app.Close)
	const file = "SIDECAR_PLAN_FILE=../../examples/topologies/headers/billing.json"
	cfg := live(t, file, "SIDECAR_APP_URL="+app.URL+"/", "SIDECAR_PARK_ON_STATUS=409")
	out := &strings.Builder{}
	if err := Check(t.Context(), cfg, out, false, plain); !errors.Is(err, errFindings) || !strings.Contains(out.String(), `queue "billing": missing`) {
		t.Errorf("a check before anything was declared: %v\n%s", err, out)
	}
	a, _, stop := run(t, cfg)
	url := brokertest.URL(t)
	brokertest.Eventually(t, time.Minute, "ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, url)
	for id, headers := range map[string]amqp.Table{
		"good": {"kind": "invoice", "version": int64(2)}, "bad": {"refund": true},
	} {
		brokertest.Publish(t, ch, "documents", "", amqp.Publishing{MessageId: id, Headers: headers})
	}
	brokertest.Eventually(t, time.Minute, "one acked, one parked", func() bool {
		f := a.Flow()
		return f.Settled["ack"] == 1 && f.Settled["park"] == 1
	})
	q, err := DeadLetters(cfg, Build{}, "operator")
	if err != nil || q.Name() != "billing.dead" {
		t.Errorf("%v %v", q, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, mode := range []string{"declare", "verify", "none"} {
		out.Reset()
		if err := Check(t.Context(), live(t, file, "SIDECAR_TOPOLOGY_MODE="+mode), out, false, plain); err != nil || !strings.Contains(out.String(), map[bool]string{true: "ok       ", false: "note     "}[mode == "declare"]+"billing") {
			t.Errorf("check in mode %s: %v\n%s", mode, err, out)
		}
	}
	out.Reset()
	if err := RoundTrip(t.Context(), cfg, Build{}, out); err != nil || !strings.Contains(out.String(), "billing.roundtrip") {
		t.Errorf("%v\n%s", err, out)
	}
}
