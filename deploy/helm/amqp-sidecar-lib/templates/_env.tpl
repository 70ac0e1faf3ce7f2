{{- /* Which value sets which variable. What a value that is empty comes to is the sidecar's own default, so nothing is
rendered for it and extraEnv may set it. */ -}}
{{- define "amqp-sidecar-lib.typed" -}}
SIDECAR_AMQP_TLS_SERVER_NAME: broker.tls.serverName
SIDECAR_APP_DOWN: dispatch.appDown
SIDECAR_APP_HEALTH_INTERVAL: dispatch.healthInterval
SIDECAR_APP_HEALTH_PATH: app.healthPath
SIDECAR_APP_TIMEOUT: dispatch.timeout
SIDECAR_BATCH_FORMAT: flow.batchFormat
SIDECAR_BATCH_SIZE: flow.batchSize
SIDECAR_BATCH_WAIT: flow.batchWait
SIDECAR_BINDINGS: topology.bindings
SIDECAR_CLOUDEVENTS: dispatch.cloudEvents
SIDECAR_CONCURRENCY: flow.concurrency
SIDECAR_CONSUME: sidecar.consume
SIDECAR_CONTROL_ADDR: sidecar.control.address
SIDECAR_DEAD_LETTER: topology.deadLetter
SIDECAR_DEFAULT_CONTENT_TYPE: dispatch.defaultContentType
SIDECAR_DLQ: topology.dlq
SIDECAR_DLX: topology.dlx
SIDECAR_EXCHANGE: topology.exchange
SIDECAR_EXCHANGE_TYPE: topology.exchangeType
SIDECAR_FORWARD_HEADERS: dispatch.forwardHeaders
SIDECAR_LOG_FORMAT: sidecar.logFormat
SIDECAR_LOG_LEVEL: sidecar.logLevel
SIDECAR_MAX_BODY: flow.maxBody
SIDECAR_MAX_CONCURRENCY: flow.maxConcurrency
SIDECAR_MAX_RETRIES: topology.maxRetries
SIDECAR_MEMORY: flow.memory
SIDECAR_MESSAGE_TTL: topology.messageTTL
SIDECAR_ORDER_BY: flow.orderBy
SIDECAR_ORDER_SCOPE: flow.orderScope
SIDECAR_OUTBOX_COLUMNS: outbox.columns
SIDECAR_OUTBOX_POLL_INTERVAL: outbox.pollInterval
SIDECAR_OUTBOX_RETENTION: outbox.retention
SIDECAR_OUTBOX_TABLE: outbox.table
SIDECAR_PARK_ANSWER: dispatch.parkAnswer
SIDECAR_PARK_ON_STATUS: dispatch.parkOnStatus
SIDECAR_PASSTHROUGH_HEADERS: dispatch.passthroughHeaders
SIDECAR_PREFETCH: flow.prefetch
SIDECAR_PREFIX: topology.prefix
SIDECAR_PUBLISH_EXCHANGES: publish.exchanges
SIDECAR_PUBLISH_ROUTING_KEYS: publish.routingKeys
SIDECAR_PUBLISH_TIMEOUT: publish.timeout
SIDECAR_QUEUE: topology.queue
SIDECAR_QUEUE_ARGUMENTS: topology.queueArguments
SIDECAR_QUEUE_TYPE: topology.queueType
SIDECAR_RATE_LIMIT: flow.rateLimit
SIDECAR_REQUEUE_DELAY_MAX: dispatch.requeueDelayMax
SIDECAR_RESPONSE_DIALECT: dispatch.responseDialect
SIDECAR_RETRY_AFTER_MAX: dispatch.retryAfterMax
SIDECAR_RETRY_DELAY: topology.retryDelay
SIDECAR_RETRY_DELAYS: topology.retryDelays
SIDECAR_RETRY_EXCHANGE: topology.retryExchange
SIDECAR_RETRY_QUEUE: topology.retryQueue
SIDECAR_ROUTES: app.routes
SIDECAR_ROUTES_ELSE: app.routesElse
SIDECAR_SERVICE: sidecar.service
SIDECAR_SHUTDOWN_GRACE: sidecar.shutdownGrace
SIDECAR_TOPOLOGY: topology.preset
SIDECAR_TOPOLOGY_MODE: topology.mode
OTEL_EXPORTER_OTLP_ENDPOINT: tracing.endpoint
OTEL_RESOURCE_ATTRIBUTES: tracing.resourceAttributes
OTEL_SERVICE_NAME: tracing.serviceName
OTEL_TRACES_SAMPLER: tracing.sampler
OTEL_TRACES_SAMPLER_ARG: tracing.samplerArg
{{- end -}}

{{- /* Where files are in the sidecar's container, by what they are for. Directories, not single files: those that are
mounted alone (subPath) never change, and a secret is rotated by changing the file. */ -}}
{{- define "amqp-sidecar-lib.directories" -}}
{broker: /etc/amqp-sidecar/broker, tls: /etc/amqp-sidecar/tls, control: /etc/amqp-sidecar/control, app: /etc/amqp-sidecar/app, publish: /etc/amqp-sidecar/publish, outbox: /etc/amqp-sidecar/outbox, outbox-tls: /etc/amqp-sidecar/outbox-tls, spool: /var/spool/amqp-sidecar}
{{- end -}}

{{- /* Variables that come from more than one value, or name a file: {variable: {value, from}}. */ -}}
{{- define "amqp-sidecar-lib.made" -}}
{{- $v := .values -}}
{{- $dir := include "amqp-sidecar-lib.directories" . | fromYaml -}}
{{- $made := dict -}}
{{- $b := $v.broker -}}
{{- if or $b.url $b.existingSecret -}}
{{- $_ := set $made "SIDECAR_AMQP_URL_FILE" (dict "value" (printf "%s/url" $dir.broker) "from" (ternary "broker.url" "broker.existingSecret" (not (empty $b.url)))) -}}
{{- end -}}
{{- if and $b.existingSecret $b.usernameKey -}}
{{- $_ := set $made "SIDECAR_AMQP_USERNAME_FILE" (dict "value" (printf "%s/username" $dir.broker) "from" "broker.usernameKey") -}}
{{- end -}}
{{- if and $b.existingSecret $b.passwordKey -}}
{{- $_ := set $made "SIDECAR_AMQP_PASSWORD_FILE" (dict "value" (printf "%s/password" $dir.broker) "from" "broker.passwordKey") -}}
{{- end -}}
{{- if $b.tls.existingSecret -}}
{{- if $b.tls.caKey -}}
{{- $_ := set $made "SIDECAR_AMQP_TLS_CA_FILE" (dict "value" (printf "%s/ca.crt" $dir.tls) "from" "broker.tls.caKey") -}}
{{- end -}}
{{- if $b.tls.certKey -}}
{{- $_ := set $made "SIDECAR_AMQP_TLS_CERT_FILE" (dict "value" (printf "%s/tls.crt" $dir.tls) "from" "broker.tls.certKey") -}}
{{- end -}}
{{- if $b.tls.keyKey -}}
{{- $_ := set $made "SIDECAR_AMQP_TLS_KEY_FILE" (dict "value" (printf "%s/tls.key" $dir.tls) "from" "broker.tls.keyKey") -}}
{{- end -}}
{{- end -}}
{{- with $v.sidecar.control -}}
{{- if and .existingSecret .tokenKey -}}
{{- $_ := set $made "SIDECAR_CONTROL_TOKEN_FILE" (dict "value" (printf "%s/token" $dir.control) "from" "sidecar.control.tokenKey") -}}
{{- end -}}
{{- if and .existingSecret .readTokenKey -}}
{{- $_ := set $made "SIDECAR_CONTROL_READ_TOKEN_FILE" (dict "value" (printf "%s/read-token" $dir.control) "from" "sidecar.control.readTokenKey") -}}
{{- end -}}
{{- end -}}
{{- if $v.app.token.existingSecret -}}
{{- $_ := set $made "SIDECAR_APP_TOKEN_FILE" (dict "value" (printf "%s/token" $dir.app) "from" "app.token") -}}
{{- end -}}
{{- with $v.publish -}}
{{- if .enabled -}}
{{- $_ := set $made "SIDECAR_PUBLISH_ADDR" (dict "value" (.address | default "127.0.0.1:9092") "from" (ternary "publish.enabled" "publish.address" (empty .address))) -}}
{{- end -}}
{{- if and .existingSecret .tokenKey -}}
{{- $_ := set $made "SIDECAR_PUBLISH_TOKEN_FILE" (dict "value" (printf "%s/token" $dir.publish) "from" "publish.tokenKey") -}}
{{- end -}}
{{- end -}}
{{- if $v.outbox.existingSecret -}}
{{- $_ := set $made "SIDECAR_OUTBOX_DSN_FILE" (dict "value" (printf "%s/dsn" $dir.outbox) "from" "outbox.existingSecret") -}}
{{- end -}}
{{- with include "amqp-sidecar-lib.appURL" (dict "app" $v.app) | fromJson -}}
{{- $_ := set $made "SIDECAR_APP_URL" . -}}
{{- end -}}
{{- if $v.sidecar.adminPort -}}
{{- $_ := set $made "SIDECAR_ADMIN_ADDR" (dict "value" (printf ":%d" (int $v.sidecar.adminPort)) "from" "sidecar.adminPort") -}}
{{- end -}}
{{- if $v.tracing.headers.existingSecret -}}
{{- $ref := dict "secretKeyRef" (dict "name" $v.tracing.headers.existingSecret "key" $v.tracing.headers.existingSecretKey) -}}
{{- $_ := set $made "OTEL_EXPORTER_OTLP_HEADERS" (dict "valueFrom" $ref "from" "tracing.headers") -}}
{{- end -}}
{{- toJson $made -}}
{{- end -}}

{{- /* {value, from} of the URL that a section app comes to, as JSON; {} where it says nothing. "port" is taken where it names none. */ -}}
{{- define "amqp-sidecar-lib.appURL" -}}
{{- $a := .app -}}
{{- $url := dict -}}
{{- if $a.url -}}
{{- $url = dict "value" $a.url "from" "app.url" -}}
{{- else if or $a.port $a.path -}}
{{- $from := list (ternary "app.port" "" (not (empty $a.port))) (ternary "app.path" "" (not (empty $a.path))) | compact | join " and " -}}
{{- $url = dict "value" (printf "http://127.0.0.1:%v/%s" (int ($a.port | default .port | default 8080)) (trimPrefix "/" ($a.path | default ""))) "from" $from -}}
{{- end -}}
{{- toJson $url -}}
{{- end -}}

{{- /* {variable: {value, from}} of the values that are set, by {variable: path}, as JSON. */ -}}
{{- define "amqp-sidecar-lib.set" -}}
{{- $set := dict -}}
{{- range $variable, $path := .typed -}}
{{- $value := $.values -}}
{{- range splitList "." $path -}}
{{- $value = ternary (get ($value | default dict) .) nil (kindIs "map" $value) -}}
{{- end -}}
{{- if kindIs "map" $value -}}
{{- $pairs := list -}}
{{- range $k, $x := $value -}}
{{- $text := include "amqp-sidecar-lib.text" $x -}}
{{- $pairs = append $pairs (printf "%s=%s" $k (ternary (urlquery $text | replace "+" "%20") $text (hasPrefix "OTEL_" $variable))) -}}
{{- end -}}
{{- $value = join "," $pairs -}}
{{- end -}}
{{- with include "amqp-sidecar-lib.text" $value -}}
{{- $_ := set $set $variable (dict "value" . "from" $path) -}}
{{- end -}}
{{- end -}}
{{- toJson $set -}}
{{- end -}}

{{- /* All there is to know of a context (dict "root" $ "values" <subtree>), as JSON:
  values  the values with defaults
  typed   {variable: {value or valueFrom, from}} of the values that are set
  entries extraEnv, and env of the subscriptions: a list of {at, entry}
  given   {variable: {value or valueFrom}} of them
  at      {variable: where it is set, for messages}
  env     {variable: text} as the sidecar will see it, defaults that the chart makes included; null where the value comes from the cluster (valueFrom)
*/ -}}
{{- define "amqp-sidecar-lib.settings" -}}
{{- include "amqp-sidecar-lib.refuse" (include "amqp-sidecar-lib.check.shape" .) -}}
{{- $v := include "amqp-sidecar-lib.values" . | fromJson -}}
{{- $typed := dict -}}
{{- range $what := list "made" "set" "subscribed" -}}
{{- $typed = include (printf "amqp-sidecar-lib.%s" $what) (dict "values" $v "typed" (include "amqp-sidecar-lib.typed" $ | fromYaml)) | fromJson | merge $typed -}}
{{- end -}}
{{- $entries := include "amqp-sidecar-lib.entries" $v | fromJsonArray -}}
{{- $given := dict -}}
{{- $at := dict "SIDECAR_ADMIN_ADDR" "sidecar.adminPort" "SIDECAR_APP_URL" "app.port" -}}
{{- range $variable, $path := include "amqp-sidecar-lib.typed" . | fromYaml -}}{{- $_ := set $at $variable $path -}}{{- end -}}
{{- range $variable, $x := $typed -}}{{- $_ := set $at $variable $x.from -}}{{- end -}}
{{- range $entries -}}
{{- if and (kindIs "map" .entry) .entry.name -}}
{{- $_ := set $given .entry.name .entry -}}
{{- $_ := set $at .entry.name .at -}}
{{- end -}}
{{- end -}}
{{- $env := dict "SIDECAR_SERVICE" (include "amqp-sidecar-lib.instance" .root) "SIDECAR_APP_URL" "http://127.0.0.1:8080/" "SIDECAR_ADMIN_ADDR" ":9090" "SIDECAR_SHUTDOWN_GRACE" "25s" -}}
{{- range $set := list $typed $given -}}
{{- range $variable, $x := $set -}}
{{- $_ := set $env $variable (ternary nil (include "amqp-sidecar-lib.text" $x.value) (hasKey $x "valueFrom")) -}}
{{- end -}}
{{- end -}}
{{- if and (kindIs "bool" $v.tracing.enabled) (not $v.tracing.enabled) -}}
{{- range $variable := keys $typed -}}
{{- if hasPrefix "OTEL_" $variable -}}{{- $_ := unset $typed $variable -}}{{- $_ := unset $env $variable -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "values" $v "typed" $typed "entries" $entries "given" $given "env" $env "at" $at | toJson -}}
{{- end -}}

{{- /* {variable: address} of what the sidecar listens on; null where the value comes from the cluster. */ -}}
{{- define "amqp-sidecar-lib.listeners" -}}
{{- $all := dict "SIDECAR_ADMIN_ADDR" ":9090" "SIDECAR_CONTROL_ADDR" "127.0.0.1:9091" -}}
{{- range $variable := list "SIDECAR_ADMIN_ADDR" "SIDECAR_CONTROL_ADDR" "SIDECAR_PUBLISH_ADDR" -}}
{{- if hasKey $.env $variable -}}{{- $_ := set $all $variable (get $.env $variable) -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- /* Environment of the app's container, as a list: where it POSTs messages. Nothing without that listener. */ -}}
{{- define "amqp-sidecar-lib.appEnv" -}}
{{- with (include "amqp-sidecar-lib.settings" . | fromJson).env.SIDECAR_PUBLISH_ADDR -}}
{{- $host := ternary "[::1]" "127.0.0.1" (hasPrefix "[::1]" .) -}}
- {name: SIDECAR_PUBLISH_URL, value: {{ printf "http://%s:%s/publish" $host (include "amqp-sidecar-lib.port" .) | quote }}}
{{- end -}}
{{- end -}}

{{- /* JSON of a list for env, its values as the text that Kubernetes wants them to be. */ -}}
{{- define "amqp-sidecar-lib.texts" -}}
{{- $list := list -}}
{{- range . -}}
{{- if and (kindIs "map" .) (hasKey . "value") -}}
{{- $list = append $list (merge (dict "value" (include "amqp-sidecar-lib.text" .value)) (omit . "value")) -}}
{{- else -}}
{{- $list = append $list . -}}
{{- end -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- /* The list for env of the sidecar's container: what values set, then extraEnv. */ -}}
{{- define "amqp-sidecar-lib.env" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $list := list -}}
{{- if not (hasKey $s.given "SIDECAR_SERVICE") -}}
{{- $list = append $list (dict "name" "SIDECAR_SERVICE" "value" $s.env.SIDECAR_SERVICE) -}}
{{- end -}}
{{- range $variable, $x := $s.typed -}}
{{- if and (ne $variable "SIDECAR_SERVICE") (not (hasKey $s.given $variable)) -}}
{{- $list = append $list (merge (dict "name" $variable) (omit $x "from")) -}}
{{- end -}}
{{- end -}}
{{- $dir := include "amqp-sidecar-lib.directories" . | fromYaml -}}
{{- if not (hasKey $s.given "SIDECAR_SPOOL_DIR") -}}
{{- $list = append $list (dict "name" "SIDECAR_SPOOL_DIR" "value" $dir.spool) -}}
{{- end -}}
{{- range $s.entries -}}{{- $list = append $list .entry -}}{{- end -}}
{{- toYaml (include "amqp-sidecar-lib.texts" $list | fromJsonArray) -}}
{{- end -}}
