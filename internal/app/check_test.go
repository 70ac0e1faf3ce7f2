package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// declared declares the topology of cfg as sidecar run does, and returns it.
func declared(t *testing.T, cfg *config.Config) *topology.Plan {
	t.Helper()
	plan := must.Get(newPlan(cfg))(t)
	s := must.Get(dial(t.Context(), cfg, "test", Build{}))(t)
	defer s.Close()
	if r := must.Get(declare.Ensure(t.Context(), s, plan, topology.ModeDeclare))(t); len(r.Blocking()) > 0 {
		t.Fatalf("the topology cannot be declared: %v", r.Findings)
	}
	return plan
}

// checkJSON is what a script reads of a check.
type checkJSON struct {
	CheckResult

	Findings []findingJSON `json:"findings"`
}

type findingJSON struct {
	Severity, Object, Problem, Property, Wanted, Found, Reason, Fix string
}

// checked runs a check that prints JSON.
func checked(t *testing.T, cfg *config.Config) (r checkJSON, err error) {
	t.Helper()
	var out bytes.Buffer
	err = Check(t.Context(), cfg, &out, true, plain)
	if err != nil && !errors.Is(err, errFindings) && !errors.Is(err, ErrMissing) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if jerr := d.Decode(&r); jerr != nil || d.More() {
		t.Fatalf("not one JSON object: %v", jerr)
	}
	if r.Fits != (err == nil) || r.Made != errors.Is(err, ErrMissing) {
		t.Errorf("fits is %v, made by run %v, and the error %v", r.Fits, r.Made, err)
	}
	return r, err
}

// printed runs a check that prints for people.
func printed(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := Check(t.Context(), cfg, &out, false, plain); err != nil && !errors.Is(err, errFindings) && !errors.Is(err, ErrMissing) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// TestCheckSaysWhatItHasNotSeen: over AMQP alone a check never says that all fits.
func TestCheckSaysWhatItHasNotSeen(t *testing.T) {
	t.Parallel()
	plan := declared(t, live(t))
	for mode, want := range map[string]string{
		"declare": "ok       " + plan.Queue + " fits: retried messages wait and return, parked ones go to " + plan.Park.Queue +
			"; sidecar run declares its bindings; policies not seen\n",
		"verify": "note     " + plan.Queue + ": its objects fit; bindings: not checked (AMQP does not show them); policies: not checked\n",
		"none":   "note     " + plan.Queue + ": its objects fit; bindings: not checked (AMQP does not show them); policies: not checked\n",
	} {
		cfg := live(t, "SIDECAR_TOPOLOGY_MODE="+mode)
		if out := printed(t, cfg); !strings.HasSuffix(out, want) || !strings.Contains(out, "note     bindings and policies cannot be seen") {
			t.Errorf("%s: printed\n%swant at the end\n%s", mode, out, want)
		} else if strings.Contains(out, "\nok ") != (mode == "declare") {
			t.Errorf("%s: ok was said of what was not seen:\n%s", mode, out)
		}
		r, _ := checked(t, cfg)
		if r.Service != "demo-orders" || r.Queue != plan.Queue || r.Bindings != notSeen || r.Policies != notSeen || !r.Fits {
			t.Errorf("%s: %+v", mode, r)
		}
	}
}

// TestCheckNamesNoTypeThatItDoesNotKnow: of a queue that will be declared the type may be another one, and of one that exists
// and that the broker does not show there is none.
func TestCheckNamesNoTypeThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	cfg := live(t)
	named := func(finds string) (lines []string) {
		t.Helper()
		out := printed(t, cfg)
		if !strings.Contains(out, finds) {
			t.Errorf("not %s:\n%s", finds, out)
		}
		return slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return !strings.Contains(line, "classic queue") })
	}
	if all := named("missing"); len(all) != 1 || !strings.Contains(all[0], "(this does not hold if quorum is the virtual host's default)") {
		t.Errorf("missing: %q", all)
	}
	queue := must.Get(newPlan(cfg))(t).Queue
	must.Get(brokertest.Channel(t, brokertest.URL(t)).QueueDeclare(queue, false, false, true, false, nil))(t)
	if all := named("exclusive"); len(all) != 0 {
		t.Errorf("exclusive: %q", all)
	}
}

// TestCheckJSONHasLists: a script finds lists where there is nothing.
func TestCheckJSONHasLists(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, Check(t.Context(), live(t, "SIDECAR_CONSUME=off", "SIDECAR_PUBLISH_ADDR=127.0.0.1:0", "SIDECAR_PUBLISH_TOKEN=0123456789abcdef"), &out, true, plain))
	want := `"user":"guest","queue":"","fits":true,"made_by_run":false,"bindings":"not seen","policies":"not seen","findings":[],"warnings":[]}` + "\n"
	if !strings.HasPrefix(out.String(), `{"service":"demo-orders","broker":["`) || !strings.HasSuffix(out.String(), want) {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

// TestCheckJSONOfAFinding: a script finds every part of a finding by its name.
func TestCheckJSONOfAFinding(t *testing.T) {
	t.Parallel()
	for judgement, severity := range map[topology.Judgement]string{
		topology.Breaks: "problem", topology.Weaker: "warning", topology.Harmless: "note",
	} {
		got := must.Get(json.Marshal(declare.Finding{
			Judgement: judgement, Object: "o", Problem: declare.ProblemDrift, Property: "p", Wanted: "w", Found: "f",
			Reason: "r", Fix: "x",
		}))(t)
		want := `{"severity":"` + severity + `","object":"o","problem":"drift","property":"p","wanted":"w","found":"f",` +
			`"reason":"r","fix":"x"}`
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
