package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// patience is how long a worker waits for more messages, from the first one on.
const patience = 20 * time.Millisecond

// batches is the same loop for batches: each worker has a channel of its own, so that one ack settles all of a POST.
func batches(stop context.Context, conn *amqp.Connection, workers, size int, post func([]byte) bool) error {
	var running sync.WaitGroup
	var channels []*amqp.Channel
	for i := range workers {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		channels = append(channels, ch)
		if err := ch.Qos(min(2*size, 65535), 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(queue(), "baseline-"+strconv.Itoa(i), false, false, false, false, nil)
		if err != nil {
			return err
		}
		running.Go(func() { work(deliveries, size, post) })
	}
	<-stop.Done()
	for i, ch := range channels {
		if err := ch.Cancel("baseline-"+strconv.Itoa(i), false); err != nil {
			return err
		}
	}
	running.Wait()
	return nil
}

func work(deliveries <-chan amqp.Delivery, size int, post func([]byte) bool) {
	var body []byte
	for last := range deliveries {
		body = appendLine(body[:0], &last)
		timeout := time.NewTimer(patience)
	gather:
		for n := 1; n < size; n++ {
			select {
			case d, ok := <-deliveries:
				if !ok {
					break gather
				}
				body = appendLine(body, &d)
				last = d
			case <-timeout.C:
				break gather
			}
		}
		timeout.Stop()
		var err error
		if post(body) {
			err = last.Ack(true)
		} else {
			err = last.Nack(true, true)
		}
		if err != nil {
			report(err)
		}
	}
}

// appendLine appends a message as a line of JSON. It is lean: the body is embedded unread, because the service sends
// JSON alone, and package json sees only headers and texts that need an escape.
func appendLine(b []byte, d *amqp.Delivery) []byte {
	b = appendText(append(b, `{"exchange":`...), d.Exchange)
	b = appendText(append(b, `,"routing_key":`...), d.RoutingKey)
	if d.MessageId != "" {
		b = appendText(append(b, `,"message_id":`...), d.MessageId)
	}
	if d.ContentType != "" {
		b = appendText(append(b, `,"content_type":`...), d.ContentType)
	}
	if len(d.Headers) > 0 {
		headers, err := json.Marshal(d.Headers)
		if err != nil {
			report(err)
		}
		b = append(append(b, `,"headers":`...), headers...)
	}
	return append(append(append(b, `,"body":`...), d.Body...), "}\n"...)
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				report(err)
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func postLines(client *http.Client, url string, body []byte) bool {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/jsonl")
	return succeeds(client, req)
}
