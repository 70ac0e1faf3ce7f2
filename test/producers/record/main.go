// The program record writes what producers send to standard output. It runs a command that starts them, one after the
// other, and prints "name<tab>version" for each, whose message has the routing key orders.NAME.
//
//	usage: record AMQP-URL EXCHANGE BROKER-VERSION COMMAND [ARG]...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// patience bounds the wait for a message of a producer that has ended.
const patience = 10 * time.Second

func main() {
	if err := record(context.Background(), os.Stdout, os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		log.Fatal(err)
	}
}

func record(ctx context.Context, to io.Writer, url, exchange, broker string, command []string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has nothing to lose
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	deliveries, err := consume(ch, exchange)
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the command of this program's user
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		return err
	}
	producers := strings.Split(strings.TrimSpace(string(out)), "\n")
	messages := map[string]json.RawMessage{}
	rows := make([]string, len(producers))
	for i, p := range producers {
		name, version, _ := strings.Cut(p, "\t")
		for messages[name] == nil {
			select {
			case d := <-deliveries:
				messages[strings.TrimPrefix(d.RoutingKey, "orders.")] = line(&d)
			case <-time.After(patience):
				return fmt.Errorf("%s has sent nothing", name)
			}
		}
		rows[i] = fmt.Sprintf("{\"producer\": %q, \"version\": %q, \"message\": %s}", name, version, messages[name])
	}
	_, err = fmt.Fprintf(to, "{\n\"recorded\": %q,\n\"broker\": %q,\n\"sent\": [\n%s\n]}\n",
		time.Now().UTC().Format(time.DateOnly), broker, strings.Join(rows, ",\n"))
	return err
}

// consume has what arrives at a topic exchange, and what MQTT clients send.
func consume(ch *amqp.Channel, exchange string) (<-chan amqp.Delivery, error) {
	if err := ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
		return nil, err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, err
	}
	for _, from := range []string{exchange, "amq.topic"} {
		if err := ch.QueueBind(q.Name, "orders.*", from, false, nil); err != nil {
			return nil, err
		}
	}
	return ch.Consume(q.Name, "", true, false, false, false, nil)
}

// Parts that no two runs have in common.
var (
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}`)
	origin = regexp.MustCompile(`^gen\d+@.+`)
)

func line(d *amqp.Delivery) json.RawMessage {
	for _, s := range []*string{&d.MessageId, &d.CorrelationId, &d.ReplyTo} {
		*s = stable(*s)
	}
	for name, v := range d.Headers {
		if s, ok := v.(string); ok {
			d.Headers[name] = stable(s)
		}
	}
	switch sec := d.Timestamp.Unix(); {
	case sec > 1e11: // milliseconds
		d.Timestamp = time.Unix(1772000000123, 0)
	case sec > 0:
		d.Timestamp = time.Unix(1772000000, 0)
	}
	m := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
	return amqpvalue.AppendLine(nil, d.Exchange, d.RoutingKey, &m)
}

func stable(s string) string {
	return origin.ReplaceAllString(uuid.ReplaceAllString(s, "00000000-0000-4000-8000-000000000000"), "gen1@host")
}
