// The consumer of a service as it is often written by hand.
package main

import (
	"errors"
	"flag"
	"log"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/examples/migration/billing"
)

func main() {
	url := flag.String("url", "amqp://guest:guest@127.0.0.1:5672/", "broker")
	queue := flag.String("queue", "billing", "queue")
	flag.Parse()
	if err := consume(*url, *queue); err != nil {
		log.Fatal(err)
	}
	log.Fatal("connection lost") // and the supervisor starts it again
}

func consume(url, queue string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(10, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	log.Print("consuming ", queue)
	for d := range deliveries {
		if err := settle(d, billing.Bill(d.Body)); err != nil {
			return err
		}
	}
	return nil
}

func settle(d amqp.Delivery, err error) error {
	switch {
	case err == nil:
		return d.Ack(false)
	case errors.Is(err, billing.ErrInvalid):
		return d.Reject(false) // to the queue's dead-letter exchange, if it has one
	}
	return d.Nack(false, true) // back to the head of the queue, and here again at once
}
