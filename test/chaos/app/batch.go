package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"sidecar/internal/apptest"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
)

// item is one message of a request of several.
type item struct {
	MessageID     string         `json:"message_id"`
	ContentType   string         `json:"content_type"`
	Type          string         `json:"type"`
	CorrelationID string         `json:"correlation_id"`
	Headers       map[string]any `json:"headers"`
	Body          string         `json:"body"`
	Base64        []byte         `json:"body_base64"`
	Delivery      struct {
		Attempt     int  `json:"attempt"`
		RetryCount  int  `json:"retry_count"`
		Redelivered bool `json:"redelivered"`
	} `json:"delivery"`
}

// gathered is the content type of such a request.
const gathered = "application/jsonl"

// batch is such a request with what is done about it.
type batch struct {
	receipts []ledger.Receipt
	answers  []plan.Answer
	form     *rand.Rand // of the answer
}

// answerBatch answers a request of several messages: as a whole, or each of them as its plan says.
func (a *App) answerBatch(c *apptest.Conn, r *apptest.Request) bool {
	if c.Finish(r) != nil {
		return false
	}
	b, err := a.read(r)
	if err != nil {
		a.write(ledger.Receipt{Key: a.key(), At: ledger.Now(), Odd: err.Error()})
		return false
	}
	for _, receipt := range b.receipts {
		a.write(receipt)
	}
	n := len(b.receipts)
	switch {
	case b.receipts[0].Whole:
		return a.actAll(c, b, spoils[b.form.IntN(len(spoils))])
	case n == 1 && (b.form.IntN(2) == 0 || !verdict(b.answers[0].Status)):
		return a.act(c, b.answers[0], b.receipts[0])
	}
	return a.actAll(c, b, outcome{raw: b.results()})
}

// read decodes the messages of a request and decides what is done about them, which depends on the seed and on the
// first of them.
func (a *App) read(r *apptest.Request) (*batch, error) {
	var items []item
	for d := json.NewDecoder(bytes.NewReader(r.Body)); d.More(); {
		var i item
		if err := d.Decode(&i); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(items)+1, err)
		}
		items = append(items, i)
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("no message in %d bytes", len(r.Body))
	}
	var b batch
	var plans []plan.Plan
	for i := range items {
		receipt, p := a.receipt(r, &items[i])
		receipt.Of = len(items)
		b.receipts, plans = append(b.receipts, receipt), append(plans, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	first := b.receipts[0].Seq
	b.form = rand.New(rand.NewPCG(a.run.Seed, uint64(first)<<8+uint64(a.seen[first])))
	calibrates := false
	for i, p := range plans {
		answer := p.Answer(a.seen[b.receipts[i].Seq] + 1)
		b.answers = append(b.answers, answer)
		calibrates = calibrates || p.Kind == plan.Slow || p.Kind == plan.Prompt
	}
	whole := len(items) > 1 && !calibrates && b.form.IntN(100) < a.run.Spoiled
	for i := range b.receipts {
		b.receipts[i].Whole = whole
		if !whole {
			a.seen[b.receipts[i].Seq]++
		}
	}
	return &b, nil
}

func (a *App) receipt(r *apptest.Request, i *item) (ledger.Receipt, plan.Plan) {
	mark, _ := i.Headers[plan.HeaderMark].(string)
	text, _ := i.Headers[plan.HeaderPlan].(string)
	receipt := ledger.Receipt{
		Key: a.key(), ID: i.MessageID, Seq: plan.SeqOf(i.MessageID), Mark: mark, Odd: a.strange(r), At: r.At.UnixNano(),
		Attempt: i.Delivery.Attempt, Count: i.Delivery.RetryCount, Again: i.Delivery.Redelivered,
	}
	p, err := plan.Parse(text)
	if err != nil {
		receipt.Odd = err.Error()
	}
	if i.ContentType != plan.ContentType || i.Type != plan.Type || i.CorrelationID != i.MessageID {
		receipt.Odd = fmt.Sprintf("properties %q %q %q", i.ContentType, i.Type, i.CorrelationID)
	}
	body := i.Base64
	if body == nil {
		body = []byte(i.Body)
	}
	receipt.Sum = plan.Sum(body)
	return receipt, p
}

// outcome is what is done about a request as a whole.
type outcome struct {
	raw    string
	status int  // for the ledger, of every message; 0: each has its own
	hang   bool // nothing is answered
	reset  bool
}

// spoils are the ways in which a request of several messages fails as a whole.
var spoils = []outcome{
	{raw: apptest.Status(http.StatusInternalServerError), status: http.StatusInternalServerError},
	{raw: apptest.Status(http.StatusUnprocessableEntity), status: http.StatusUnprocessableEntity},
	{status: ledger.Hung, hang: true},
	{status: ledger.Aborted, reset: true},
	{raw: apptest.Full(http.StatusMultiStatus, `{"index":0,"status":200}`+"\n"+`{"index":1,"sta`), status: ledger.Garbled},
	{raw: apptest.Full(http.StatusMultiStatus, "{\"index\":100000,\"status\":500}\n"), status: ledger.Garbled},
	{raw: apptest.Full(http.StatusOK, `{"batchItemFailures":[{"itemIdentifier":"`, "Content-Type: application/json"),
		status: ledger.Garbled},
}

// verdict reports whether a status may stand in a list of results.
func verdict(status int) bool { return status >= 100 && status <= 599 }

// results is the answer that says something about each message, in one of the forms that it may have.
func (b *batch) results() string {
	lambda, every := b.form.IntN(3) == 0, b.form.IntN(2) == 0
	var lines, failures strings.Builder
	failed := 0
	for i := range b.answers {
		answer := &b.answers[i]
		if !verdict(answer.Status) { // a list cannot say it
			answer.Status = http.StatusServiceUnavailable
		}
		if answer.Status > 299 {
			failed++
			lambda = lambda && answer.Status != http.StatusTooEarly // there a message can only fail
			if failures.Len() > 0 {
				failures.WriteByte(',')
			}
			_, _ = fmt.Fprintf(&failures, `{"itemIdentifier":%q}`, b.receipts[i].ID)
		}
		if every || answer.Status > 299 {
			_, _ = fmt.Fprintf(&lines, "{\"index\":%d,\"status\":%d}\n", i, answer.Status)
		}
	}
	switch {
	case failed == 0 && !every:
		return []string{
			apptest.Status(http.StatusNoContent), apptest.Full(http.StatusOK, "OK"),
			apptest.Full(http.StatusOK, `{"ok":true}`, "Content-Type: application/json"),
		}[b.form.IntN(3)]
	case lambda && len(b.answers) > 1: // what is parked says the status of its last attempt, which this form has not
		return apptest.Full(http.StatusOK, `{"batchItemFailures":[`+failures.String()+`]}`,
			"Content-Type: application/json")
	}
	switch array := "[" + strings.ReplaceAll(strings.TrimSuffix(lines.String(), "\n"), "\n", ",") + "]"; b.form.IntN(4) {
	case 0:
		return apptest.Full(http.StatusOK, lines.String(), "Content-Type: application/x-ndjson")
	case 1:
		return apptest.Full(http.StatusOK, array, "Content-Type: application/json")
	case 2:
		return apptest.Full(http.StatusOK, `{"results":`+array+`}`)
	}
	return apptest.Full(http.StatusMultiStatus, lines.String())
}

// actAll gives the answer to a request and writes down what it says of each message.
func (a *App) actAll(c *apptest.Conn, b *batch, o outcome) (keep bool) {
	for _, answer := range b.answers {
		if answer.Slow {
			time.Sleep(plan.SlowAnswer)
			break
		}
	}
	begun := ledger.Now()
	var err error
	switch {
	case o.hang:
		a.hang(c)
		err = c.Reset()
	case o.reset:
		err = c.Reset()
	default:
		_, err = c.Write([]byte(o.raw))
	}
	at := ledger.Now()
	for i, receipt := range b.receipts {
		done := ledger.Receipt{Key: receipt.Key, Seq: receipt.Seq, Status: b.answers[i].Status, Begun: begun, At: at}
		if o.status != 0 {
			done.Status = o.status
		}
		if err != nil {
			done.Error = err.Error()
		}
		a.write(done)
	}
	return err == nil && !o.hang && !o.reset
}
