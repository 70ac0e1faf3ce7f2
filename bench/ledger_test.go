package main

import (
	"strings"
	"testing"
)

func TestLedgerBalances(t *testing.T) {
	t.Parallel()
	good := func() *run {
		return &run{
			Candidate: "x", Load: load{Messages: 10}, Stats: appStats{Received: 10, Distinct: 10},
			Left: map[string]int{"queue": 0, "retry-queue": 0, "dlq": 0},
		}
	}
	if err := good().balance(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*run)
		says   string
	}{
		"lost":             {func(r *run) { r.Stats.Received, r.Stats.Distinct = 9, 9 }, "1 of 10 messages never reached the app"},
		"twice":            {func(r *run) { r.Stats.Received = 11 }, "1 duplicates"},
		"one for another":  {func(r *run) { r.Stats.Distinct = 9 }, "1 duplicates"},
		"unknown":          {func(r *run) { r.Stats.Received, r.Stats.Unknown = 11, 1 }, "1 requests that no message"},
		"left":             {func(r *run) { r.Left["queue"] = 3 }, "3 messages left in the queue"},
		"retried":          {func(r *run) { r.Left["retry-queue"] = 2 }, "2 messages left in the retry-queue"},
		"parked":           {func(r *run) { r.Left["dlq"] = 1 }, "1 messages left in the dlq"},
		"nothing received": {func(r *run) { r.Stats = appStats{} }, "10 of 10 messages"},
		"batches": {func(r *run) {
			r.Load.Item, r.Stats = "x", appStats{Received: 11, Distinct: 10}
		}, "11 messages reached the app, not 10"},
	} {
		r := good()
		c.change(r)
		if err := r.balance(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
