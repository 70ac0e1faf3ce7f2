package app

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// TestResults: whatever its form, an answer says of each message what the ledger says of it.
func TestResults(t *testing.T) {
	t.Parallel()
	forms := map[string]int{}
	for seed := range uint64(3000) {
		form := rand.New(rand.NewPCG(seed, 1))
		b := batch{form: form}
		for i := range 1 + form.IntN(5) {
			answer := plan.Answer{Status: []int{200, 200, 425, 500, 302, 404, 999, 0}[form.IntN(8)]}
			b.answers = append(b.answers, answer)
			b.receipts = append(b.receipts, ledger.Receipt{Seq: i, ID: fmt.Sprintf("run-%d", i)})
		}
		head, body, _ := strings.Cut(b.results(), "\r\n\r\n")
		want := make([]string, len(b.answers)) // "" for a success
		for i, answer := range b.answers {
			if answer.Status > 299 {
				want[i] = fmt.Sprint(answer.Status)
			}
		}
		got := make([]string, len(want))
		name := kindOf(head, body)
		forms[name]++
		switch name {
		case "object":
			var object struct {
				BatchItemFailures []struct{ ItemIdentifier string }
			}
			must.Do(t, json.Unmarshal([]byte(body), &object))
			for _, f := range object.BatchItemFailures {
				i := slices.IndexFunc(b.receipts, func(r ledger.Receipt) bool { return r.ID == f.ItemIdentifier })
				got[i] = want[i]
				if want[i] == "425" {
					t.Errorf("seed %d: a message fails that came too early: %s", seed, body)
				}
			}
		case "array", "member":
			var lines []struct{ Index, Status int }
			must.Do(t, json.Unmarshal([]byte(trimMember(body)), &lines))
			for _, line := range lines {
				if line.Status != 200 {
					got[line.Index] = fmt.Sprint(line.Status)
				}
			}
		case "lines":
			for d := json.NewDecoder(strings.NewReader(body)); d.More(); {
				var line struct{ Index, Status int }
				must.Do(t, d.Decode(&line))
				if line.Status != 200 {
					got[line.Index] = fmt.Sprint(line.Status)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %q says %q, the ledger %q", seed, body, got, want)
		}
	}
	if len(forms) != 5 {
		t.Errorf("forms: %v", forms)
	}
}

// kindOf is what an answer with such a head and body holds.
func kindOf(head, body string) string {
	switch {
	case strings.HasPrefix(body, "["):
		return "array"
	case strings.HasPrefix(body, `{"results":`):
		return "member"
	case strings.HasPrefix(head, "HTTP/1.1 207 "), strings.Contains(head, "ndjson"):
		return "lines"
	case strings.Contains(head, "application/json"):
		return "object"
	}
	return "nothing"
}

// trimMember returns the array in {"results":[…]}, or an array itself.
func trimMember(body string) string {
	if array, found := strings.CutPrefix(body, `{"results":`); found {
		return strings.TrimSuffix(array, "}")
	}
	return body
}
