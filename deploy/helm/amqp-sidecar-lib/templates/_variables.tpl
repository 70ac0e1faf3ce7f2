{{- /* Generated from internal/config by "go generate ./internal/config". Do not edit. */ -}}
{{- define "amqp-sidecar-lib.variables" -}}
SIDECAR_SERVICE: {}
SIDECAR_AMQP_URL: {"twin":"SIDECAR_AMQP_URL_FILE"}
SIDECAR_AMQP_USERNAME: {"twin":"SIDECAR_AMQP_USERNAME_FILE"}
SIDECAR_AMQP_PASSWORD: {"twin":"SIDECAR_AMQP_PASSWORD_FILE"}
SIDECAR_AMQP_SASL: {"words":["plain","external"]}
SIDECAR_AMQP_TLS_CA_FILE: {}
SIDECAR_AMQP_TLS_CERT_FILE: {}
SIDECAR_AMQP_TLS_KEY_FILE: {}
SIDECAR_AMQP_TLS_SERVER_NAME: {}
SIDECAR_AMQP_HEARTBEAT: {"kind":"duration","low":"1s","high":"5m","unit":"1s"}
SIDECAR_APP_URL: {}
SIDECAR_APP_TIMEOUT: {"kind":"duration","low":"1ms","high":"20m"}
SIDECAR_APP_TOKEN: {"twin":"SIDECAR_APP_TOKEN_FILE"}
SIDECAR_APP_HEALTH_PATH: {}
SIDECAR_APP_HEALTH_INTERVAL: {"kind":"duration","low":"10ms","high":"5m"}
SIDECAR_APP_HEALTH_TIMEOUT: {"kind":"duration","low":"1ms","high":"1m"}
SIDECAR_RESPONSE_DIALECT: {"words":["off","dapr"]}
SIDECAR_CONCURRENCY: {"kind":"number","low":"1","high":"10000"}
SIDECAR_PREFETCH: {"kind":"number","low":"1","high":"65535"}
SIDECAR_MAX_BODY: {"kind":"size","low":"1","high":"512MiB"}
SIDECAR_MAX_RETRIES: {"kind":"number","low":"0","high":"1000000"}
SIDECAR_RETRY_DELAY: {"kind":"duration","low":"1ms","high":"1193h2m47.295s","unit":"1ms"}
SIDECAR_RETRY_DELAYS: {"kind":"durations","low":"1ms","high":"1193h2m47.295s","unit":"1ms"}
SIDECAR_PARK_ON_STATUS: {}
SIDECAR_APP_DOWN: {"words":["hold","retry"]}
SIDECAR_REQUEUE_DELAY_MIN: {"kind":"duration","low":"250ms","high":"10m"}
SIDECAR_REQUEUE_DELAY_MAX: {"kind":"duration","low":"250ms","high":"10m"}
SIDECAR_RETRY_AFTER_MAX: {"kind":"duration","low":"1s","high":"24m"}
SIDECAR_CRASH_LIMIT: {"kind":"number","low":"0","high":"1000"}
SIDECAR_CRASH_DIR: {}
SIDECAR_TOPOLOGY: {"words":["fanout","topic-tiers","per-queue","delay-ladder","dead-letter"]}
SIDECAR_TOPOLOGY_MODE: {"words":["declare","verify","none"]}
SIDECAR_QUEUE_TYPE: {"words":["classic","quorum"]}
SIDECAR_PREFIX: {}
SIDECAR_EXCHANGE: {}
SIDECAR_EXCHANGE_TYPE: {"words":["direct","fanout","topic","headers"]}
SIDECAR_QUEUE: {}
SIDECAR_BINDINGS: {}
SIDECAR_RETRY_EXCHANGE: {}
SIDECAR_RETRY_QUEUE: {}
SIDECAR_DLX: {}
SIDECAR_DLQ: {}
SIDECAR_MESSAGE_TTL: {"kind":"duration","low":"1ms","high":"1193h2m47.295s","unit":"1ms"}
SIDECAR_DEAD_LETTER: {"words":["enabled","disabled"]}
SIDECAR_FORWARD_HEADERS: {}
SIDECAR_PASSTHROUGH_HEADERS: {}
SIDECAR_CLOUDEVENTS: {"words":["off","binary","structured"]}
SIDECAR_ADMIN_ADDR: {}
SIDECAR_CONTROL_ADDR: {}
SIDECAR_CONTROL_TOKEN: {"twin":"SIDECAR_CONTROL_TOKEN_FILE"}
SIDECAR_CONTROL_READ_TOKEN: {"twin":"SIDECAR_CONTROL_READ_TOKEN_FILE"}
SIDECAR_SHUTDOWN_GRACE: {"kind":"duration","low":"0s","high":"1h"}
SIDECAR_LOG_LEVEL: {"words":["debug","info","warn","error"]}
SIDECAR_LOG_FORMAT: {"words":["json","text"]}
OTEL_EXPORTER_OTLP_ENDPOINT: {}
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: {}
OTEL_EXPORTER_OTLP_PROTOCOL: {}
OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: {}
OTEL_EXPORTER_OTLP_HEADERS: {}
OTEL_EXPORTER_OTLP_TRACES_HEADERS: {}
OTEL_EXPORTER_OTLP_TIMEOUT: {"kind":"number","low":"1","high":"600000"}
OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: {"kind":"number","low":"1","high":"600000"}
OTEL_EXPORTER_OTLP_COMPRESSION: {"words":["none","gzip"]}
OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: {"words":["none","gzip"]}
OTEL_EXPORTER_OTLP_CERTIFICATE: {}
OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: {}
OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: {}
OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: {}
OTEL_EXPORTER_OTLP_CLIENT_KEY: {}
OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: {}
OTEL_TRACES_EXPORTER: {"words":["otlp","none"]}
OTEL_SDK_DISABLED: {}
OTEL_SERVICE_NAME: {}
OTEL_RESOURCE_ATTRIBUTES: {}
OTEL_TRACES_SAMPLER: {"words":["always_on","always_off","traceidratio","parentbased_always_on","parentbased_always_off","parentbased_traceidratio"]}
OTEL_TRACES_SAMPLER_ARG: {"kind":"number"}
{{- end -}}
{{- define "amqp-sidecar-lib.reservedHeaders" -}}
never: [host, content-length, transfer-encoding, connection, expect, authorization, cookie, x-forwarded-for, x-forwarded-host, x-forwarded-proto, x-forwarded-port]
bare: [keep-alive, te, trailer, trailers, upgrade, http2-settings, www-authenticate, cookie2, set-cookie, set-cookie2, forwarded, via, x-real-ip, true-client-ip, cf-connecting-ip, fastly-client-ip, x-client-ip, x-cluster-client-ip, x-remote-addr, x-remote-user, remote-user, x-original-url, x-rewrite-url, x-host, x-http-method, x-http-method-override, x-method-override, user-agent, accept-encoding, date, range, content-type, proxy-authorization, x-envoy-original-path, sec-fetch-site, if-match, amqp-queue, ce-id]
prefixes: [content-, proxy-, x-forwarded, x-original-, x-envoy-, sec-, if-, amqp-, ce-]
{{- end -}}
