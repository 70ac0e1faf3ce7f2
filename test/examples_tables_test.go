package test

// exampleTables are the objects of the systems that the files in examples/topologies describe, one line each. They are
// written down here from those systems' own documents, not from what the sidecar prints. What the documents leave open, as
// the retry queue of dead-letter and the arguments that keep dead letters in quorum queues, is as docs/topologies.md says.
var exampleTables = map[string]string{
	"topic-tiers/freeflow-user.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.user x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.user.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="user.retry" x-message-ttl=30000
queue freeflow.user.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="user.retry" x-message-ttl=300000
queue freeflow.user.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="user.retry" x-message-ttl=1800000
binding freeflow.events user.* freeflow.user
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry user.30s freeflow.user.retry.30s
binding freeflow.events.retry user.5m freeflow.user.retry.5m
binding freeflow.events.retry user.30m freeflow.user.retry.30m
`,
	"topic-tiers/freeflow-auth.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.auth x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.auth.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="auth.retry" x-message-ttl=30000
queue freeflow.auth.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="auth.retry" x-message-ttl=300000
queue freeflow.auth.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="auth.retry" x-message-ttl=1800000
binding freeflow.events auth.* freeflow.auth
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry auth.30s freeflow.auth.retry.30s
binding freeflow.events.retry auth.5m freeflow.auth.retry.5m
binding freeflow.events.retry auth.30m freeflow.auth.retry.30m
`,
	"topic-tiers/freeflow-alarm.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.alarm x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.alarm.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="alarm.retry" x-message-ttl=30000
queue freeflow.alarm.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="alarm.retry" x-message-ttl=300000
queue freeflow.alarm.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="alarm.retry" x-message-ttl=1800000
binding freeflow.events alarm.* freeflow.alarm
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry alarm.30s freeflow.alarm.retry.30s
binding freeflow.events.retry alarm.5m freeflow.alarm.retry.5m
binding freeflow.events.retry alarm.30m freeflow.alarm.retry.30m
`,
	"topic-tiers/freeflow-document.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.document x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.document.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="document.retry" x-message-ttl=30000
queue freeflow.document.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="document.retry" x-message-ttl=300000
queue freeflow.document.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="document.retry" x-message-ttl=1800000
binding freeflow.events document.* freeflow.document
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry document.30s freeflow.document.retry.30s
binding freeflow.events.retry document.5m freeflow.document.retry.5m
binding freeflow.events.retry document.30m freeflow.document.retry.30m
`,
	"topic-tiers/freeflow-workflow.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.workflow x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.workflow.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="workflow.retry" x-message-ttl=30000
queue freeflow.workflow.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="workflow.retry" x-message-ttl=300000
queue freeflow.workflow.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="workflow.retry" x-message-ttl=1800000
binding freeflow.events workflow.* freeflow.workflow
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry workflow.30s freeflow.workflow.retry.30s
binding freeflow.events.retry workflow.5m freeflow.workflow.retry.5m
binding freeflow.events.retry workflow.30m freeflow.workflow.retry.30m
`,
	"topic-tiers/freeflow-notification.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.notification x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.notification.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="notification.retry" x-message-ttl=30000
queue freeflow.notification.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="notification.retry" x-message-ttl=300000
queue freeflow.notification.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="notification.retry" x-message-ttl=1800000
binding freeflow.events notification.* freeflow.notification
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry notification.30s freeflow.notification.retry.30s
binding freeflow.events.retry notification.5m freeflow.notification.retry.5m
binding freeflow.events.retry notification.30m freeflow.notification.retry.30m
`,
	"topic-tiers/freeflow-audit.env": `
exchange freeflow.events topic
exchange freeflow.events.retry direct
exchange freeflow.events.dlx fanout
queue freeflow.audit x-dead-letter-exchange="freeflow.events.dlx"
queue freeflow.events.dlq
queue freeflow.audit.retry.30s x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="audit.retry" x-message-ttl=30000
queue freeflow.audit.retry.5m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="audit.retry" x-message-ttl=300000
queue freeflow.audit.retry.30m x-dead-letter-exchange="freeflow.events" x-dead-letter-routing-key="audit.retry" x-message-ttl=1800000
binding freeflow.events audit.* freeflow.audit
binding freeflow.events.dlx "" freeflow.events.dlq
binding freeflow.events.retry audit.30s freeflow.audit.retry.30s
binding freeflow.events.retry audit.5m freeflow.audit.retry.5m
binding freeflow.events.retry audit.30m freeflow.audit.retry.30m
`,
	"per-queue/upload.commands.env": `
exchange domain.commands topic
exchange retry.q.upload.commands direct
exchange dlq.q.upload.commands direct
queue q.upload.commands x-dead-letter-exchange="retry.q.upload.commands" x-dead-letter-routing-key="retry"
queue q.upload.commands.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.upload.commands" x-message-ttl=15000
queue q.upload.commands.dlq
binding domain.commands commands.upload.# q.upload.commands
binding domain.commands commands.file.reprocess.* q.upload.commands
binding retry.q.upload.commands retry q.upload.commands.retry
binding dlq.q.upload.commands parking q.upload.commands.dlq
`,
	"per-queue/validator.env": `
exchange domain.events topic
exchange retry.q.validator direct
exchange dlq.q.validator direct
queue q.validator x-dead-letter-exchange="retry.q.validator" x-dead-letter-routing-key="retry"
queue q.validator.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.validator" x-message-ttl=15000
queue q.validator.dlq
binding domain.events files.uploaded.* q.validator
binding retry.q.validator retry q.validator.retry
binding dlq.q.validator parking q.validator.dlq
`,
	"per-queue/thumbnail.env": `
exchange domain.events topic
exchange retry.q.thumbnail direct
exchange dlq.q.thumbnail direct
queue q.thumbnail x-dead-letter-exchange="retry.q.thumbnail" x-dead-letter-routing-key="retry"
queue q.thumbnail.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.thumbnail" x-message-ttl=15000
queue q.thumbnail.dlq
binding domain.events files.validated.* q.thumbnail
binding retry.q.thumbnail retry q.thumbnail.retry
binding dlq.q.thumbnail parking q.thumbnail.dlq
`,
	"per-queue/extractor.env": `
exchange domain.events topic
exchange retry.q.extractor direct
exchange dlq.q.extractor direct
queue q.extractor x-dead-letter-exchange="retry.q.extractor" x-dead-letter-routing-key="retry"
queue q.extractor.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.extractor" x-message-ttl=15000
queue q.extractor.dlq
binding domain.events files.validated.* q.extractor
binding retry.q.extractor retry q.extractor.retry
binding dlq.q.extractor parking q.extractor.dlq
`,
	"per-queue/projection.env": `
exchange domain.events topic
exchange retry.q.projection direct
exchange dlq.q.projection direct
queue q.projection x-dead-letter-exchange="retry.q.projection" x-dead-letter-routing-key="retry"
queue q.projection.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.projection" x-message-ttl=15000
queue q.projection.dlq
binding domain.events # q.projection
binding retry.q.projection retry q.projection.retry
binding dlq.q.projection parking q.projection.dlq
`,
	"per-queue/notification.env": `
exchange domain.events topic
exchange retry.q.notification direct
exchange dlq.q.notification direct
queue q.notification x-dead-letter-exchange="retry.q.notification" x-dead-letter-routing-key="retry"
queue q.notification.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.notification" x-message-ttl=15000
queue q.notification.dlq
binding domain.events processing.# q.notification
binding domain.events files.rejected.* q.notification
binding retry.q.notification retry q.notification.retry
binding dlq.q.notification parking q.notification.dlq
`,
	"per-queue/audit.env": `
exchange domain.events topic
exchange retry.q.audit direct
exchange dlq.q.audit direct
queue q.audit x-dead-letter-exchange="retry.q.audit" x-dead-letter-routing-key="retry"
queue q.audit.retry x-dead-letter-exchange="" x-dead-letter-routing-key="q.audit" x-message-ttl=15000
queue q.audit.dlq
binding domain.events # q.audit
binding retry.q.audit retry q.audit.retry
binding dlq.q.audit parking q.audit.dlq
`,
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
