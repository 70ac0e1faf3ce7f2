package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// planFile writes the plan of a configuration, after change, into a file and returns the variable that names it.
func planFile(t *testing.T, cfg *config.Config, change func(plan map[string]any)) string {
	t.Helper()
	plan := map[string]any{}
	must.Do(t, json.Unmarshal([]byte(must.Get(RenderPlan(cfg, "json"))(t)), &plan))
	if change != nil {
		change(plan)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	must.Do(t, os.WriteFile(path, must.Get(json.Marshal(plan))(t), 0o600))
	return "SIDECAR_PLAN_FILE=" + path
}

// TestPlanFromFile: with the printed plan as a file every command shows the same, in every mode. No warning asks for a
// variable that cannot be set.
func TestPlanFromFile(t *testing.T) {
	t.Parallel()
	for _, preset := range [][]string{
		{"SIDECAR_TOPOLOGY=fanout"}, {"SIDECAR_TOPOLOGY=topic-tiers", "SIDECAR_DLQ=d", "SIDECAR_QUEUE_TYPE=quorum"},
		{"SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_QUEUE=q", "SIDECAR_BINDINGS=a:b", "SIDECAR_DEAD_LETTER=disabled"},
	} {
		for _, mode := range []string{"declare", "verify", "none"} {
			mode = "SIDECAR_TOPOLOGY_MODE=" + mode
			cfg := must.Get(judged(append(preset, mode)...))(t)
			fromFile := must.Get(judged(planFile(t, cfg, nil), mode))(t)
			for _, format := range PlanFormats {
				want, err := RenderPlan(cfg, format)
				if got, errFile := RenderPlan(fromFile, format); err != nil || errFile != nil || got != want {
					t.Errorf("%v %s %s: %v %v\n%s", preset, mode, format, err, errFile, got)
				}
			}
			question := Question{Status: 503, RetryAfter: -1}
			if got, want := must.Get(Explain(fromFile, question))(t), must.Get(Explain(cfg, question))(t); !reflect.DeepEqual(got, want) {
				t.Errorf("%v %v: %v", preset, mode, got)
			}
			planned, filed := must.Get(newPlan(cfg))(t), must.Get(newPlan(fromFile))(t)
			if got, want := mainExchange(fromFile, filed), mainExchange(cfg, planned); got != want && preset[0] != "SIDECAR_TOPOLOGY=dead-letter" {
				t.Errorf("%v: main exchange %q, want %q", preset, got, want)
			}
			values, warned, err := PresetValues(fromFile)
			if text := strings.ReplaceAll(strings.Join(warned, "\n"), "SIDECAR_TOPOLOGY_MODE", ""); err != nil || values != nil || text == "" ||
				strings.Contains(text, "SIDECAR_") {
				t.Errorf("%v %s: %v %v %q", preset, mode, err, values, warned)
			}
		}
	}
}

// TestBrokenPlanFile: all problems of the file are among those of the variables, a line each.
func TestBrokenPlanFile(t *testing.T) {
	t.Parallel()
	file := planFile(t, must.Get(judged())(t), func(p map[string]any) {
		p["max_retries"], p["queue"], p["tiers"] = 1.5, "other", true
	})
	_, err := judged(file, "SIDECAR_QUEUE=q", "SIDECAR_LOG_LEVEL=loud")
	if err == nil {
		t.Fatal("accepted")
	}
	_, path, _ := strings.Cut(file, "=")
	want := []string{
		`SIDECAR_PLAN_FILE="` + path + `": $.max_retries: 1.5 is not a whole number`,
		`SIDECAR_PLAN_FILE="` + path + `": $.tiers: unknown field`,
		`SIDECAR_PLAN_FILE="` + path + `": $.queue: the service's queue "other" is not in the plan`,
		`SIDECAR_QUEUE="q": cannot be combined with SIDECAR_PLAN_FILE: the file says it in $.queue; allowed: `,
		`SIDECAR_LOG_LEVEL="loud": not one of the words`,
	}
	if lines := strings.Split(err.Error(), "\n"); !slices.EqualFunc(lines, want, strings.HasPrefix) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	unjudged := must.Get(config.Load([]string{file, "SIDECAR_SERVICE=wms-cincout"}, 0))(t)
	for _, format := range PlanFormats {
		if _, err := RenderPlan(unjudged, format); err == nil || !strings.Contains(err.Error(), "$.queue") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestPlanFileWithoutBindings: what the app publishes without saying where goes to the default exchange.
func TestPlanFileWithoutBindings(t *testing.T) {
	t.Parallel()
	cfg := must.Get(judged("SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b"))(t)
	fromFile := must.Get(judged(planFile(t, cfg, func(p map[string]any) { p["bindings"], p["exchanges"] = []any{}, []any{} })))(t)
	p := must.Get(newPlan(fromFile))(t)
	if x := mainExchange(fromFile, p); x != "" || p.Preset != topology.PresetDelayLadder || p.Service != "wms-cincout" {
		t.Errorf("main exchange %q of %+v", x, p)
	}
}

// TestRunAPlanFromAFile: the objects of a file are declared, judged and used, by the commands and by the sidecar.
func TestRunAPlanFromAFile(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("bad", apptest.Say(apptest.Status(409)))
	const file = "SIDECAR_PLAN_FILE=../../examples/topologies/headers/billing.json"
	cfg := live(t, file, "SIDECAR_APP_URL="+app.URL, "SIDECAR_PARK_ON_STATUS=409")
	if out := problems(t, cfg); !strings.Contains(out, `queue "billing": missing`) {
		t.Errorf("a check before anything was declared:\n%s", out)
	}
	a, _, stop := run(t, cfg)
	brokertest.Eventually(t, time.Minute, "ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, brokertest.URL(t))
	for id, headers := range map[string]amqp.Table{
		"good": {"kind": "invoice", "version": int64(2)}, "bad": {"refund": true},
	} {
		brokertest.Publish(t, ch, "documents", "", amqp.Publishing{MessageId: id, Headers: headers})
	}
	brokertest.Eventually(t, time.Minute, "one acked, one parked", func() bool {
		f := a.Flow()
		return f.Settled["ack"] == 1 && f.Settled["park"] == 1
	})
	if name := must.Get(DeadLetters(cfg, Build{}, "operator"))(t).Name(); name != "billing.dead" {
		t.Errorf("the dead-letter queue is %s", name)
	}
	must.Do(t, stop())
	for mode, want := range map[string]string{"declare": "ok       billing", "verify": "note     billing", "none": "note     billing"} {
		if out := printed(t, live(t, file, "SIDECAR_TOPOLOGY_MODE="+mode)); !strings.Contains(out, want) {
			t.Errorf("check in mode %s:\n%s", mode, out)
		}
	}
	var out strings.Builder
	if err := RoundTrip(t.Context(), cfg, Build{}, &out); err != nil || !strings.Contains(out.String(), "billing.roundtrip") {
		t.Errorf("%v\n%s", err, &out)
	}
}
