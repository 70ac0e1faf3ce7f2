package test

import (
	"fmt"
	"strings"
)

// exampleTables are the objects of the systems that the files in examples/topologies describe, one line each. They are
// written down here from those systems' own documents, not from what the sidecar prints. Comments say where the two
// differ, and why. Where messages go in them is in the golden plans of package topology.
var exampleTables = map[string]string{
	"topic-tiers/freeflow-user.env":         topicTiers("user"),
	"topic-tiers/freeflow-auth.env":         topicTiers("auth"),
	"topic-tiers/freeflow-alarm.env":        topicTiers("alarm"),
	"topic-tiers/freeflow-document.env":     topicTiers("document"),
	"topic-tiers/freeflow-workflow.env":     topicTiers("workflow"),
	"topic-tiers/freeflow-notification.env": topicTiers("notification"),
	"topic-tiers/freeflow-audit.env":        topicTiers("audit"),
	"per-queue/upload.commands.env":         perQueue("domain.commands", "upload.commands", "commands.upload.#", "commands.file.reprocess.*"),
	"per-queue/validator.env":               perQueue("domain.events", "validator", "files.uploaded.*"),
	"per-queue/thumbnail.env":               perQueue("domain.events", "thumbnail", "files.validated.*"),
	"per-queue/extractor.env":               perQueue("domain.events", "extractor", "files.validated.*"),
	"per-queue/projection.env":              perQueue("domain.events", "projection", "#"),
	"per-queue/notification.env":            perQueue("domain.events", "notification", "processing.#", "files.rejected.*"),
	"per-queue/audit.env":                   perQueue("domain.events", "audit", "#"),
	// The seven services of a directory above, as subscriptions of one sidecar.
	"seven-domains.env": topicTiers("user") + topicTiers("auth") + topicTiers("alarm") + topicTiers("document") + topicTiers("workflow") +
		topicTiers("notification") + topicTiers("audit"),
	"seven-queues.env": perQueue("domain.commands", "upload.commands", "commands.upload.#", "commands.file.reprocess.*") +
		perQueue("domain.events", "validator", "files.uploaded.*") + perQueue("domain.events", "thumbnail", "files.validated.*") +
		perQueue("domain.events", "extractor", "files.validated.*") + perQueue("domain.events", "projection", "#") +
		perQueue("domain.events", "notification", "processing.#", "files.rejected.*") + perQueue("domain.events", "audit", "#"),
	"delay-ladder/demo.order_processor.env": delayLadder("order_processor", "order.process", 2, 5, 15),
	// The document has these two listeners without the names of their queues.
	"delay-ladder/demo.task-two-delays.env": delayLadder("task", "task", 2, 5),
	"delay-ladder/demo.task-no-delays.env":  delayLadder("task", "task"),
	// The arguments of the delay queues are those of the document, and no more. It leaves open those of the other two
	// queues: they are quorum queues as well, and a reject of the last attempt leads from the one to the other.
	"delay-ladder/demo.order_processor.json": `
exchange demo.events topic
queue demo.order_processor x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor.dlq" x-queue-type="quorum"
queue demo.order_processor.delay_2s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-message-ttl=2000 x-queue-type="quorum"
queue demo.order_processor.delay_5s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-message-ttl=5000 x-queue-type="quorum"
queue demo.order_processor.delay_15s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-message-ttl=15000 x-queue-type="quorum"
queue demo.order_processor.dlq x-queue-type="quorum"
binding demo.events order.process demo.order_processor
`,
	"dead-letter/order-placed.env":     deadLetter(""),
	"dead-letter/order-placed-ttl.env": deadLetter(" x-message-ttl=300000"),
	// Without a dead-letter exchange no queue keeps a message after its last attempt.
	"dead-letter/order-placed-disabled.env": `
exchange foodies topic
queue order-service.order-placed
queue order-service.order-placed.retry x-dead-letter-exchange="" x-dead-letter-routing-key="order-service.order-placed" x-message-ttl=5000
binding foodies order.placed order-service.order-placed
`,
	"fanout/wms-cincout.env": fanout("wms", "wms-cincout"),
	"fanout/xyz-service.env": fanout("xyz", "xyz-service"),
	"fanout/noprefix.env":    fanout("default", "noprefix"),
	// The document has classic queues. Quorum queues keep the messages that a killed broker loses in classic ones.
	"fanout/wms-cincout-quorum.env": `
exchange wms.main-exchange fanout
exchange wms.retry-exchange.wms-cincout direct
queue wms.queue.wms-cincout x-dead-letter-exchange="wms.retry-exchange.wms-cincout" x-dead-letter-routing-key="retry" x-dead-letter-strategy="at-least-once" x-delivery-limit=2147483647 x-overflow="reject-publish" x-queue-type="quorum"
queue wms.retry-queue.wms-cincout x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-dead-letter-strategy="at-least-once" x-message-ttl=5000 x-overflow="reject-publish" x-queue-type="quorum"
queue wms.dlq.wms-cincout x-delivery-limit=2147483647 x-queue-type="quorum"
binding wms.main-exchange "" wms.queue.wms-cincout
binding wms.retry-exchange.wms-cincout retry wms.retry-queue.wms-cincout
`,
	// The document has one delay of 5 s. Its retry queue stays, for what the broker or another consumer dead-letters.
	"fanout/wms-cincout-tiers.env": `
exchange wms.main-exchange fanout
exchange wms.retry-exchange.wms-cincout direct
queue wms.queue.wms-cincout x-dead-letter-exchange="wms.retry-exchange.wms-cincout" x-dead-letter-routing-key="retry"
queue wms.retry-queue.wms-cincout x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-message-ttl=5000
queue wms.retry-queue.wms-cincout.5s x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-message-ttl=5000
queue wms.retry-queue.wms-cincout.1m x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-message-ttl=60000
queue wms.retry-queue.wms-cincout.10m x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-message-ttl=600000
queue wms.dlq.wms-cincout
binding wms.main-exchange "" wms.queue.wms-cincout
binding wms.retry-exchange.wms-cincout retry wms.retry-queue.wms-cincout
binding wms.retry-exchange.wms-cincout 5s wms.retry-queue.wms-cincout.5s
binding wms.retry-exchange.wms-cincout 1m wms.retry-queue.wms-cincout.1m
binding wms.retry-exchange.wms-cincout 10m wms.retry-queue.wms-cincout.10m
`,
	// No system had these before the sidecar: the golden plans of package topology, and the plan itself, say what there is.
	"native/shop-billing.env": "", "native/shop-billing-rising.env": "", "headers/billing.json": "",
}

// fanout are the objects of a service on a fanout exchange. The document calls its queues classic. A classic queue is
// declared without x-queue-type, as other services may have declared it.
func fanout(prefix, service string) string {
	return strings.NewReplacer("PREFIX", prefix, "SERVICE", service).Replace(`
exchange PREFIX.main-exchange fanout
exchange PREFIX.retry-exchange.SERVICE direct
queue PREFIX.queue.SERVICE x-dead-letter-exchange="PREFIX.retry-exchange.SERVICE" x-dead-letter-routing-key="retry"
queue PREFIX.retry-queue.SERVICE x-dead-letter-exchange="" x-dead-letter-routing-key="PREFIX.queue.SERVICE" x-message-ttl=5000
queue PREFIX.dlq.SERVICE
binding PREFIX.main-exchange "" PREFIX.queue.SERVICE
binding PREFIX.retry-exchange.SERVICE retry PREFIX.retry-queue.SERVICE
`)
}

// topicTiers are the objects of one of the services of freeflow, which differ in nothing but the name. The document
// leaves open the type of freeflow.events.dlx: here fanout, because every service rejects to one queue.
func topicTiers(name string) string {
	return strings.ReplaceAll(`
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.NAME x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.NAME.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="NAME.retry" x-message-ttl=30000
queue freeflow.NAME.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="NAME.retry" x-message-ttl=300000
queue freeflow.NAME.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="NAME.retry" x-message-ttl=1800000
binding freeflow.events NAME.* freeflow.NAME
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry NAME.30s freeflow.NAME.retry.30s
binding freeflow.events.retry NAME.5m freeflow.NAME.retry.5m
binding freeflow.events.retry NAME.30m freeflow.NAME.retry.30m
`, "NAME", name)
}

// perQueue are the objects of a queue with exchanges of its own, and the keys by which it is bound. Of the two main
// exchanges only the one that the queue is bound to is declared: the other is no part of this service.
func perQueue(exchange, name string, keys ...string) string {
	var bindings strings.Builder
	for _, key := range keys {
		bindings.WriteString("binding " + exchange + " " + key + " q.NAME\n")
	}
	return strings.ReplaceAll(`
exchange `+exchange+` topic
exchange retry.q.NAME direct
exchange dlq.q.NAME direct
queue q.NAME x-dead-letter-exchange="retry.q.NAME" x-dead-letter-routing-key="retry"
queue q.NAME.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.NAME" x-message-ttl=15000
queue q.NAME.dlq
`+bindings.String()+`binding retry.q.NAME retry q.NAME.retry
binding dlq.q.NAME parking q.NAME.dlq
`, "NAME", name)
}

// delayLadder are the objects of a listener of demo, with a delay queue for each number of seconds, one retry each. The
// document declares its delay queues with x-queue-type, x-message-ttl and the two arguments of the way back, and names
// no arguments of the other two queues. Here all of them have more, because quorum queues otherwise lose messages:
// x-dead-letter-strategy and x-overflow when the broker is killed, x-delivery-limit when a message is requeued often.
// What a consumer rejects has to reach the dead-letter queue, so the service queue dead-letters there. The name and type
// of the main exchange, which the document binds by keys with dots, are the preset's.
func delayLadder(name, key string, seconds ...int) string {
	var queues strings.Builder
	for _, n := range seconds {
		fmt.Fprintf(&queues, `queue demo.NAME.delay_%ds x-dead-letter-exchange="" x-dead-letter-routing-key="demo.NAME" `+
			`x-dead-letter-strategy="at-least-once" x-message-ttl=%d000 x-overflow="reject-publish" x-queue-type="quorum"`+"\n", n, n)
	}
	return strings.ReplaceAll(`
exchange demo.events topic
queue demo.NAME x-dead-letter-exchange="" x-dead-letter-routing-key="demo.NAME.dlq" x-dead-letter-strategy="at-least-once" x-delivery-limit=2147483647 x-overflow="reject-publish" x-queue-type="quorum"
`+queues.String()+`queue demo.NAME.dlq x-delivery-limit=2147483647 x-queue-type="quorum"
binding demo.events `+key+` demo.NAME
`, "NAME", name)
}

// deadLetter are the objects of order-service.order-placed, with more arguments of its queue. The document leaves retry
// queues for later; the one here is the preset's. It also leaves open the type of foodies (topic, as that of foodies.dlx,
// because its queues are bound by routing keys) and the key of the order (order.placed).
func deadLetter(more string) string {
	return strings.ReplaceAll(`
exchange foodies topic
exchange foodies.dlx topic
queue order-service.order-placed x-dead-letter-exchange="foodies.dlx" x-dead-letter-routing-key="order-service.order-placed.dlq"MORE
queue order-service.order-placed.retry x-dead-letter-exchange="" x-dead-letter-routing-key="order-service.order-placed" x-message-ttl=5000
queue order-service.order-placed.dlq
binding foodies order.placed order-service.order-placed
binding foodies.dlx order-service.order-placed.dlq order-service.order-placed.dlq
`, "MORE", more)
}
