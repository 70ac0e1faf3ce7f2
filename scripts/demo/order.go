package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// order is a message, what its app answers, and what the sidecar promises to do about it.
type order struct {
	id, story string
	body      string
	answers   []int    // expected from the app, one per attempt
	outcomes  []string // expected from the sidecar, in this order

	gotAnswers  []int
	gotOutcomes []string
	gotRetries  int // retry count of the last settlement
	wantRetries int
}

func firstScene() []*order {
	return []*order{
		{
			id: "paid", story: "the app takes it at once",
			body:    `{"answers":[200]}`,
			answers: []int{200}, outcomes: []string{"ack"},
		},
		{
			id: "busy", story: "503, then 200: retried once",
			body:    `{"answers":[503,200]}`,
			answers: []int{503, 200}, outcomes: []string{"retry", "ack"}, wantRetries: 1,
		},
		{
			id: "early", story: "425, then 200: too early, returns uncounted",
			body:    `{"answers":[425,200]}`,
			answers: []int{425, 200}, outcomes: []string{"requeue", "ack"},
		},
		{
			id: "broken", story: "500 again and again: parked after " + strconv.Itoa(maxRetries+1) + " attempts",
			body:     `{"answers":[` + strings.Repeat("500,", maxRetries+1) + `200]}`, // by then the app is repaired
			answers:  slices.Repeat([]int{500}, maxRetries+1),
			outcomes: append(slices.Repeat([]string{"retry"}, maxRetries), "park"), wantRetries: maxRetries,
		},
	}
}

// secondScene is the parked message, brought back: it goes on counting, and has one try.
func secondScene() []*order {
	return []*order{{id: "broken", answers: []int{200}, outcomes: []string{"ack"}, wantRetries: maxRetries}}
}

func thirdScene() []*order {
	return []*order{{
		id: "patient", story: "published while the app is away: no attempt is counted",
		body:    `{"answers":[200]}`,
		answers: []int{200}, outcomes: []string{"ack"},
	}}
}

// fourthScene is published over HTTP.
func fourthScene() []*order {
	return []*order{{id: "hello", body: `{"hello":"app"}`, answers: []int{200}, outcomes: []string{"ack"}}}
}

func (o *order) record(e event) {
	if e.answer != 0 {
		o.gotAnswers = append(o.gotAnswers, e.answer)
		return
	}
	// A release gives the delivery back unanswered and uncounted: it may happen whenever the app is away.
	if e.outcome != "release" {
		o.gotOutcomes, o.gotRetries = append(o.gotOutcomes, e.outcome), e.retries
	}
}

func (o *order) done() bool {
	return slices.Contains(o.gotOutcomes, "ack") || slices.Contains(o.gotOutcomes, "park")
}

// broken lists how the journey differs from what was promised.
func (o *order) broken() []string {
	var wrong []string
	if !slices.Equal(o.gotAnswers, o.answers) {
		wrong = append(wrong, fmt.Sprintf("%s: the app answered %v, promised were %v", o.id, o.gotAnswers, o.answers))
	}
	if !slices.Equal(o.gotOutcomes, o.outcomes) {
		wrong = append(wrong, fmt.Sprintf("%s: settled by %v, promised were %v", o.id, o.gotOutcomes, o.outcomes))
	}
	if o.done() && o.gotRetries != o.wantRetries {
		wrong = append(wrong, fmt.Sprintf("%s: counted %d retries, promised were %d", o.id, o.gotRetries, o.wantRetries))
	}
	return wrong
}

// journey is the whole way in one line: 500 500 … 500 > park.
func (o *order) journey() string {
	var b strings.Builder
	for i, a := range o.gotAnswers {
		if len(o.gotAnswers) > 4 && i > 0 && i < len(o.gotAnswers)-1 {
			if i == 1 {
				b.WriteString("… ")
			}
			continue
		}
		b.WriteString(strconv.Itoa(a) + " ")
	}
	return b.String() + "→ " + o.gotOutcomes[len(o.gotOutcomes)-1]
}
