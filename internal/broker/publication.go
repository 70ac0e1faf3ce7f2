package broker

import amqp "github.com/rabbitmq/amqp091-go"

// Kinds of publications: what a message is sent somewhere for. They are the values of the metric label "kind".
const (
	KindPark  = "park"
	KindRetry = "retry"
)

// Publication is a message to be published, mandatory and confirmed, in the place of another one.
type Publication struct {
	Kind          string // KindPark or KindRetry
	Exchange, Key string
	Msg           amqp.Publishing
}
