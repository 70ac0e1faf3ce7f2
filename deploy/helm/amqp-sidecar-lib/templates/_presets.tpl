{{- /* Generated from what `sidecar plan` makes by "go generate ./...". Do not edit. The placeholders are filled in
amqp-sidecar-lib.plan. */ -}}
{{- define "amqp-sidecar-lib.presets" -}}
fanout:
  exchange: "{prefix}.main-exchange"
  exchangeType: fanout
  queueType: classic
  queue: "{prefix}.queue.{service}"
  bindingKey: "#"
  retryExchange: "{prefix}.retry-exchange.{service}"
  retryQueue: "{prefix}.retry-queue.{service}"
  tierQueue: "{retry-queue}.{tier}"
  dlq: "{prefix}.dlq.{service}"
  subscribed:
    queue: "{prefix}.queue.{service}.{subscription}"
    retryExchange: "{prefix}.retry-exchange.{service}.{subscription}"
    retryQueue: "{prefix}.retry-queue.{service}.{subscription}"
    dlq: "{prefix}.dlq.{service}.{subscription}"
  delay: 5s
  delays: []
  maxRetries: 10
  rejects: true
topic-tiers:
  exchange: "{prefix}.events"
  exchangeType: topic
  queueType: classic
  queue: "{prefix}.{rest}"
  bindingKey: "{rest}.*"
  retryExchange: "{exchange}.retry"
  retryQueue: "{prefix}.{rest}.retry"
  tierQueue: "{retry-queue}.{tier}"
  dlx: "{exchange}.dlx"
  dlq: "{exchange}.dlq"
  subscribed:
    queue: "{prefix}.{subscription}"
    bindingKey: "{subscription}.*"
    retryQueue: "{prefix}.{subscription}.retry"
  delays: [30s, 5m, 30m]
  maxRetries: 3
  rejects: false
per-queue:
  exchange: "domain.events"
  exchangeType: topic
  queueType: classic
  queue: "q.{service}"
  retryExchange: "retry.{queue}"
  retryQueue: "{queue}.retry"
  tierQueue: "{retry-queue}.{tier}"
  dlx: "dlq.{queue}"
  dlq: "{queue}.dlq"
  subscribed:
    queue: "q.{subscription}"
  delay: 15s
  delays: []
  maxRetries: 3
  rejects: true
delay-ladder:
  exchange: "{prefix}.events"
  exchangeType: topic
  queueType: quorum
  queue: "{prefix}.{rest}"
  retryQueue: "{queue}.delay"
  tierQueue: "{retry-queue}_{seconds}"
  dlq: "{queue}.dlq"
  subscribed:
    queue: "{prefix}.{subscription}"
  delays: [2s, 5s, 15s]
  maxRetries: 3
  rejects: false
dead-letter:
  exchange: "{prefix}"
  exchangeType: topic
  queueType: classic
  retryQueue: "{queue}.retry"
  tierQueue: "{retry-queue}.{tier}"
  dlx: "{exchange}.dlx"
  dlq: "{queue}.dlq"
  subscribed:
    queue: "{service}.{subscription}"
  delay: 5s
  delays: []
  maxRetries: 4
  rejects: false
native:
  exchange: "{prefix}.main-exchange"
  exchangeType: fanout
  queueType: quorum
  queue: "{prefix}.queue.{service}"
  bindingKey: "#"
  tierQueue: "{queue}"
  dlq: "{prefix}.dlq.{service}"
  subscribed:
    queue: "{prefix}.queue.{service}.{subscription}"
    dlq: "{prefix}.dlq.{service}.{subscription}"
  delay: 5s
  delays: []
  maxRetries: 10
  rejects: false
{{- end -}}
