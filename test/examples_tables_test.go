package test

import "strings"

// exampleTables are the objects of the systems that the files in examples/topologies describe, one line each. They are
// written down here from those systems' own documents, not from what the sidecar prints. What the documents leave open,
// as the retry queue of dead-letter and the arguments that keep dead letters in quorum queues, is as docs/topologies
// says.
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
	"delay-ladder/demo.order_processor.env": `
exchange demo.events topic
queue demo.order_processor x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor.dlq" x-dead-letter-strategy="at-least-once" x-delivery-limit=2147483647 x-overflow="reject-publish" x-queue-type="quorum"
queue demo.order_processor.delay_2s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-dead-letter-strategy="at-least-once" x-message-ttl=2000 x-overflow="reject-publish" x-queue-type="quorum"
queue demo.order_processor.delay_5s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-dead-letter-strategy="at-least-once" x-message-ttl=5000 x-overflow="reject-publish" x-queue-type="quorum"
queue demo.order_processor.delay_15s x-dead-letter-exchange="" x-dead-letter-routing-key="demo.order_processor" x-dead-letter-strategy="at-least-once" x-message-ttl=15000 x-overflow="reject-publish" x-queue-type="quorum"
queue demo.order_processor.dlq x-delivery-limit=2147483647 x-queue-type="quorum"
binding demo.events order.process demo.order_processor
`,
	"dead-letter/order-placed.env": `
exchange foodies topic
exchange foodies.dlx topic
queue order-service.order-placed x-dead-letter-exchange="foodies.dlx" x-dead-letter-routing-key="order-service.order-placed.dlq"
queue order-service.order-placed.retry x-dead-letter-exchange="" x-dead-letter-routing-key="order-service.order-placed" x-message-ttl=5000
queue order-service.order-placed.dlq
binding foodies order.placed order-service.order-placed
binding foodies.dlx order-service.order-placed.dlq order-service.order-placed.dlq
`,
	"dead-letter/order-placed-ttl.env": `
exchange foodies topic
exchange foodies.dlx topic
queue order-service.order-placed x-dead-letter-exchange="foodies.dlx" x-dead-letter-routing-key="order-service.order-placed.dlq" x-message-ttl=300000
queue order-service.order-placed.retry x-dead-letter-exchange="" x-dead-letter-routing-key="order-service.order-placed" x-message-ttl=5000
queue order-service.order-placed.dlq
binding foodies order.placed order-service.order-placed
binding foodies.dlx order-service.order-placed.dlq order-service.order-placed.dlq
`,
	"dead-letter/order-placed-disabled.env": `
exchange foodies topic
queue order-service.order-placed
queue order-service.order-placed.retry x-dead-letter-exchange="" x-dead-letter-routing-key="order-service.order-placed" x-message-ttl=5000
binding foodies order.placed order-service.order-placed
`,
	"fanout/wms-cincout.env": `
exchange wms.main-exchange fanout
exchange wms.retry-exchange.wms-cincout direct
queue wms.queue.wms-cincout x-dead-letter-exchange="wms.retry-exchange.wms-cincout" x-dead-letter-routing-key="retry"
queue wms.retry-queue.wms-cincout x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-message-ttl=5000
queue wms.dlq.wms-cincout
binding wms.main-exchange "" wms.queue.wms-cincout
binding wms.retry-exchange.wms-cincout retry wms.retry-queue.wms-cincout
`,
	"fanout/wms-cincout-quorum.env": `
exchange wms.main-exchange fanout
exchange wms.retry-exchange.wms-cincout direct
queue wms.queue.wms-cincout x-dead-letter-exchange="wms.retry-exchange.wms-cincout" x-dead-letter-routing-key="retry" x-dead-letter-strategy="at-least-once" x-delivery-limit=2147483647 x-overflow="reject-publish" x-queue-type="quorum"
queue wms.retry-queue.wms-cincout x-dead-letter-exchange="" x-dead-letter-routing-key="wms.queue.wms-cincout" x-dead-letter-strategy="at-least-once" x-message-ttl=5000 x-overflow="reject-publish" x-queue-type="quorum"
queue wms.dlq.wms-cincout x-delivery-limit=2147483647 x-queue-type="quorum"
binding wms.main-exchange "" wms.queue.wms-cincout
binding wms.retry-exchange.wms-cincout retry wms.retry-queue.wms-cincout
`,
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
}

// topicTiers are the objects of one of the services of freeflow, which differ in nothing but the name.
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

// perQueue are the objects of a queue with exchanges of its own, and the keys by which it is bound.
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
