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

// line is a message of a POST.
type line struct {
	MessageID   string          `json:"message_id,omitempty"`
	Exchange    string          `json:"exchange"`
	RoutingKey  string          `json:"routing_key"`
	ContentType string          `json:"content_type,omitempty"`
	Headers     amqp.Table      `json:"headers,omitempty"`
	Body        json.RawMessage `json:"body"` // the service sends JSON alone
}

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
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for last := range deliveries {
		body.Reset()
		write(lines, &last)
		timeout := time.NewTimer(patience)
	gather:
		for n := 1; n < size; n++ {
			select {
			case d, ok := <-deliveries:
				if !ok {
					break gather
				}
				write(lines, &d)
				last = d
			case <-timeout.C:
				break gather
			}
		}
		timeout.Stop()
		var err error
		if post(body.Bytes()) {
			err = last.Ack(true)
		} else {
			err = last.Nack(true, true)
		}
		if err != nil {
			report(err)
		}
	}
}

func write(lines *json.Encoder, d *amqp.Delivery) {
	err := lines.Encode(line{d.MessageId, d.Exchange, d.RoutingKey, d.ContentType, d.Headers, d.Body})
	if err != nil {
		report(err)
	}
}

func postLines(client *http.Client, url string, body []byte) bool {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/jsonl")
	return succeeds(client, req)
}
