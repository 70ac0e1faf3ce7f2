package post

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"sidecar/test/chaos/plan"
)

// send POSTs one message.
func (c *client) send(ctx context.Context, m *message) {
	// The rest of the path is the key: it keeps its slashes.
	path := "/publish/" + m.alias + "/" + strings.ReplaceAll(url.PathEscape(m.key), "%2F", "/")
	req, err := c.request(ctx, path, m.body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", plan.ContentType)
	req.Header.Set("Amqp-Type", plan.Type)
	req.Header.Set("Amqp-Correlation-Id", m.record.ID)
	if m.record.Seq%2 == 0 {
		req.Header.Set("Amqp-Message-Id", m.record.ID)
	} else {
		req.Header.Set("Idempotency-Key", m.record.ID)
	}
	for name, value := range m.headers {
		req.Header.Set("Amqp-Header-"+name, url.PathEscape(fmt.Sprint(value)))
	}
	if m.record.Want == http.StatusRequestEntityTooLarge {
		req.Header.Set("Expect", "100-continue") // else the answer can be lost in the rest of the body
	}
	resp, err := c.http.Do(req)
	if err != nil {
		m.record.Code = without(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	m.record.Status, m.record.Code = resp.StatusCode, problem(resp.Body)
}

// request is a POST that net/http never repeats by itself.
func (c *client) request(ctx context.Context, path string, body []byte) (*http.Request, error) {
	// What is under way ends with its answer, not with the run.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, c.o.URL+path,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+c.o.Token)
	return req, nil
}

// without says what is known when there was no answer.
func without(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unsent
	}
	return broken
}

func problem(body io.Reader) string {
	var p struct{ Code string }
	text, err := io.ReadAll(io.LimitReader(body, 64<<10))
	if err != nil || json.Unmarshal(text, &p) != nil {
		return ""
	}
	return p.Code
}

// line is one message of a batch.
type line struct {
	Exchange      string         `json:"exchange"`
	RoutingKey    string         `json:"routing_key"`
	Body          []byte         `json:"body_base64"`
	ContentType   string         `json:"content_type"`
	MessageID     string         `json:"message_id"`
	CorrelationID string         `json:"correlation_id"`
	Type          string         `json:"type"`
	Headers       map[string]any `json:"headers"`
}

// answer is the result of one message of a batch.
type answer struct {
	Index  int    `json:"index"`
	Status int    `json:"status"`
	Code   string `json:"code"`
}

// sendBatch POSTs messages in one request. Those that nothing was said of stay unknown.
func (c *client) sendBatch(ctx context.Context, messages []*message) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	for _, m := range messages {
		err := encoder.Encode(line{
			Exchange: m.alias, RoutingKey: m.key, Body: m.body, ContentType: plan.ContentType, MessageID: m.record.ID,
			CorrelationID: m.record.ID, Type: plan.Type, Headers: m.headers,
		})
		if err != nil {
			panic(err)
		}
		m.record.Code = broken
	}
	req, err := c.request(ctx, "/publish:batch", body.Bytes())
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/jsonl")
	resp, err := c.http.Do(req)
	if err != nil {
		for _, m := range messages {
			m.record.Code = without(err)
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		code := problem(resp.Body)
		for _, m := range messages {
			m.record.Status, m.record.Code = resp.StatusCode, code
		}
		return
	}
	r := bufio.NewReader(resp.Body)
	for {
		text, err := r.ReadBytes('\n')
		if err != nil {
			return // at the end, or in the middle: half a line says nothing
		}
		var a answer
		if err := json.Unmarshal(text, &a); err != nil || a.Index < 0 || a.Index >= len(messages) ||
			messages[a.Index].record.Status != 0 {
			panic(fmt.Sprintf("an answer that belongs to no message: %q", text)) // nothing could be judged
		}
		messages[a.Index].record.Status, messages[a.Index].record.Code = a.Status, a.Code
	}
}
