package broker

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Kinds of publications: what a message is sent somewhere for. They are the values of the metric label "kind".
const (
	KindPark    = "park"
	KindRetry   = "retry"
	KindRedrive = "redrive"
	KindPublish = "publish" // the app's own, over HTTP
	KindOutbox  = "outbox"  // the app's own, from its database
	KindOther   = "other"   // what any other kind counts as
)

var kinds = []string{KindPark, KindRetry, KindRedrive, KindPublish, KindOutbox, KindOther}

// Publication is a message to be published, mandatory, persistent and confirmed, in the place of another one.
type Publication struct {
	Kind          string
	Exchange, Key string
	Msg           amqp.Publishing
}

// failed adds to an error where the message was sent.
func (p *Publication) failed(err error) error {
	return fmt.Errorf("publish to exchange %q with key %q: %w", p.Exchange, p.Key, err)
}
