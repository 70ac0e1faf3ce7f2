package message

import amqp "github.com/rabbitmq/amqp091-go"

// Kinds of publications: why a message is published. They are the values of the metric label "kind".
const (
	KindPark    = "park"
	KindRetry   = "retry"
	KindRedrive = "redrive"
	KindPublish = "publish" // the app's own, over HTTP
	KindOutbox  = "outbox"  // the app's own, from its database
	KindOther   = "other"   // what any other kind counts as
)

// Publication is a message to publish. Package broker publishes it mandatory, persistent and with a confirm.
type Publication struct {
	Kind          string
	Exchange, Key string
	Msg           amqp.Publishing
}
