// The program go sends one order, as the documentation of each library does.
//
//	usage: go amqp091|watermill
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

type order struct {
	ID    int     `json:"id"`
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

func main() {
	body, err := json.Marshal(order{7, "Zoë", 1.5})
	if err != nil {
		log.Fatal(err)
	}
	send := amqp091
	if os.Args[1] == "watermill" {
		send = watermillAMQP
	}
	if err := send(body, os.Getenv("EXCHANGE"), os.Getenv("KEY")); err != nil {
		log.Fatal(err)
	}
}

func amqp091(body []byte, exchange, key string) error {
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the message is with the broker
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	sent, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp.Publishing{Body: body})
	if err != nil {
		return err
	}
	_, err = sent.WaitContext(context.Background())
	return err
}

func watermillAMQP(body []byte, exchange, key string) error {
	config := wmamqp.NewDurablePubSubConfig(os.Getenv("AMQP_URL"), nil)
	config.Exchange.Type = "topic"
	config.Exchange.GenerateName = func(string) string { return exchange }
	config.Publish.GenerateRoutingKey = func(topic string) string { return topic }
	publisher, err := wmamqp.NewPublisher(config, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer publisher.Close() //nolint:errcheck // the message is with the broker
	return publisher.Publish(key, message.NewMessage(watermill.NewUUID(), body))
}
