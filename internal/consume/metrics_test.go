package consume

import (
	"slices"
	"testing"

	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/topology"
)

// TestEveryVerdictIsCounted: the settler counts by the pairs of possibleReasons, so one that a verdict or a settlement can
// have and the list has not would end the process.
func TestEveryVerdictIsCounted(t *testing.T) {
	t.Parallel()
	plan := benchOptions(t, 1).Plan
	discarding := *plan
	discarding.Park = topology.Route{}
	statuses := make([]int, 1000)
	for status := range statuses {
		statuses[status] = status
	}
	var outcomes []message.Outcome
	for _, status := range statuses {
		for d := message.DispositionNone; d <= message.DispositionDiscard; d++ {
			outcomes = append(outcomes, message.Outcome{Status: status, Disposition: d})
		}
	}
	for f := message.FailureNone + 1; f <= message.FailureNoRoute; f++ {
		outcomes = append(outcomes, message.Outcome{Failure: f}, message.Outcome{Failure: f, CrashProven: true})
	}
	seen := map[message.Action]bool{}
	for _, policy := range []retry.Policy{{}, {ParkOn: statuses}, {CountRefused: true, CrashLimit: 1, AckUnrouted: true}} {
		for _, p := range []*topology.Plan{plan, &discarding} {
			for _, o := range outcomes {
				for _, m := range []message.Message{
					{Queue: p.Queue, MaxRetries: 3}, {Queue: p.Queue, MaxRetries: 3, RetryCount: 3, Crashes: 3}, {Queue: p.Queue},
				} {
					v := p.Settlement(&m, policy.Decide(&m, o)).Verdict
					seen[v.Action] = true
					if !slices.Contains(possibleReasons[v.Action], v.Reason) {
						t.Fatalf("%+v: %v with the reason %v is not in possibleReasons", o, v.Action, v.Reason)
					}
				}
			}
		}
	}
	if len(seen) != message.Actions {
		t.Errorf("only the actions %v were met", seen)
	}
}
