{{- /* Generated from what the sidecar makes by "go generate ./...". Do not edit.
The placeholders are filled in amqp-sidecar-lib.queue. */ -}}
{{- define "amqp-sidecar-lib.presets" -}}
fanout: {queue: "{prefix}.queue.{service}", subscribed: "{prefix}.queue.{service}.{subscription}"}
topic-tiers: {queue: "{prefix}.{rest}", subscribed: "{prefix}.{subscription}"}
per-queue: {queue: "q.{service}", subscribed: "q.{subscription}"}
delay-ladder: {queue: "{prefix}.{rest}", subscribed: "{prefix}.{subscription}"}
dead-letter: {queue: "", subscribed: "{service}.{subscription}"}
native: {queue: "{prefix}.queue.{service}", subscribed: "{prefix}.queue.{service}.{subscription}"}
{{- end -}}
