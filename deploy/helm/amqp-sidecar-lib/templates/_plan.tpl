{{- define "amqp-sidecar-lib.fill" -}}
{{- $text := .text -}}
{{- range $placeholder, $value := .names -}}
{{- $text = replace $placeholder $value $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* What the sidecar will declare for each queue that it consumes, as a JSON list; [] where that depends on a file or on a variable that
is read in the cluster. */ -}}
{{- define "amqp-sidecar-lib.plans" -}}
{{- $plans := list -}}
{{- $each := include "amqp-sidecar-lib.settings" . | fromJson | include "amqp-sidecar-lib.each" | fromJsonArray -}}
{{- range $each -}}
{{- with include "amqp-sidecar-lib.plan" . | fromJson -}}{{- $plans = append $plans . -}}{{- end -}}
{{- end -}}
{{- ternary $plans list (eq (len $plans) (len $each)) | toJson -}}
{{- end -}}

{{- /* The plan of one of amqp-sidecar-lib.each, as JSON. */ -}}
{{- define "amqp-sidecar-lib.plan" -}}
{{- $env := .env -}}
{{- $known := not (hasKey $env "SIDECAR_PLAN_FILE") -}}
{{- range tuple "SERVICE" "TOPOLOGY" "PREFIX" "EXCHANGE" "EXCHANGE_TYPE" "QUEUE" "BINDINGS" "RETRY_EXCHANGE" "RETRY_QUEUE" "DLX" "DLQ" "RETRY_DELAY" "RETRY_DELAYS" "MAX_RETRIES" "QUEUE_TYPE" "DEAD_LETTER" -}}
{{- $name := printf "SIDECAR_%s" . -}}
{{- if and (hasKey $env $name) (kindIs "invalid" (get $env $name)) -}}{{- $known = false -}}{{- end -}}
{{- end -}}
{{- $preset := $env.SIDECAR_TOPOLOGY | default "fanout" -}}
{{- $p := get (include "amqp-sidecar-lib.presets" . | fromYaml) $preset -}}
{{- if and .name $p -}}{{- $p = merge (dict) ($p.subscribed | default dict) $p -}}{{- end -}}
{{- if and $known $p -}}
{{- $service := $env.SIDECAR_SERVICE -}}
{{- $cut := splitn "-" 2 $service -}}
{{- $hyphen := contains "-" $service -}}
{{- $prefix := $env.SIDECAR_PREFIX | default (ternary $cut._0 "default" $hyphen) -}}
{{- $names := dict "{service}" $service "{rest}" (ternary $cut._1 $service $hyphen) "{prefix}" $prefix "{subscription}" .name -}}
{{- $type := $env.SIDECAR_QUEUE_TYPE | default "auto" -}}
{{- $plan := dict "subscription" .name "preset" $preset "exchangeType" ($env.SIDECAR_EXCHANGE_TYPE | default $p.exchangeType) "queueType" (ternary $p.queueType $type (eq $type "auto")) -}}
{{- range tuple (list "exchange" "EXCHANGE" $p.exchange) (list "queue" "QUEUE" $p.queue) (list "retryExchange" "RETRY_EXCHANGE" $p.retryExchange) (list "retryQueue" "RETRY_QUEUE" $p.retryQueue) (list "dlx" "DLX" $p.dlx) (list "dlq" "DLQ" $p.dlq) -}}
{{- $value := get $env (printf "SIDECAR_%s" (index . 1)) | default (include "amqp-sidecar-lib.fill" (dict "text" (index . 2 | default "") "names" $names)) -}}
{{- $_ := set $plan (index . 0) $value -}}
{{- $_ := set $names (printf "{%s}" (kebabcase (index . 0))) $value -}}
{{- end -}}
{{- if eq ($env.SIDECAR_DEAD_LETTER | default "") "disabled" -}}
{{- $plan = set (set $plan "dlx" "") "dlq" "" -}}
{{- end -}}
{{- $delays := $p.delays | default list -}}
{{- with $env.SIDECAR_RETRY_DELAYS -}}
{{- $delays = ternary list (splitList "," .) (eq . "none") -}}
{{- end -}}
{{- $tiered := or (not (empty $env.SIDECAR_RETRY_DELAYS)) (not (empty $p.delays)) -}}
{{- $waits := list -}}
{{- if not $p.retryQueue -}}{{- /* in the queue itself, the first delay once for each failure, at most the second */ -}}
{{- $delay := $env.SIDECAR_RETRY_DELAY | default $p.delay -}}
{{- if $delays -}}{{- $delay = printf "%s, and as much longer each time, up to %s" (first $delays | trim) (last $delays | trim) -}}{{- end -}}
{{- $waits = append $waits (dict "queue" $plan.queue "delay" $delay) -}}
{{- $delays = list -}}
{{- else if not $tiered -}}
{{- $waits = append $waits (dict "queue" $plan.retryQueue "delay" ($env.SIDECAR_RETRY_DELAY | default $p.delay)) -}}
{{- else if $p.rejects -}}
{{- $_ := set $plan "idle" $plan.retryQueue -}}
{{- end -}}
{{- range $delays -}}
{{- $ms := include "amqp-sidecar-lib.milliseconds" (trim .) | int64 -}}
{{- $tier := include "amqp-sidecar-lib.tier" $ms -}}
{{- $seconds := ternary (printf "%ds" (div $ms 1000)) $tier (eq (mod $ms 1000) 0) -}}
{{- $queue := include "amqp-sidecar-lib.fill" (dict "text" $p.tierQueue "names" (merge (dict "{tier}" $tier "{seconds}" $seconds) $names)) -}}
{{- $waits = append $waits (dict "queue" $queue "delay" (trim .)) -}}
{{- end -}}
{{- $_ := set $plan "waits" $waits -}}
{{- $_ := set $plan "maxRetries" ($env.SIDECAR_MAX_RETRIES | default (ternary $p.maxRetries (len $delays) (empty $p.delays)) | toString) -}}
{{- $bindings := list -}}
{{- with $env.SIDECAR_BINDINGS -}}
{{- range splitList "," . -}}{{- $bindings = append $bindings (trim .) -}}{{- end -}}
{{- else -}}
{{- $key := ternary (include "amqp-sidecar-lib.fill" (dict "text" ($p.bindingKey | default "") "names" $names)) "" (eq $plan.exchangeType "topic") -}}
{{- $bindings = list (printf "%s:%s" $plan.exchange $key) -}}
{{- end -}}
{{- $_ := set $plan "bindings" $bindings -}}
{{- toJson $plan -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- /* The plan for people. */ -}}
{{- define "amqp-sidecar-lib.topology" -}}
{{- $plans := include "amqp-sidecar-lib.plans" . | fromJsonArray -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- if eq ($s.env.SIDECAR_CONSUME | default "") "off" -}}
consumes     nothing, and declares nothing ({{ $s.at.SIDECAR_CONSUME }} is off)
{{- else if hasKey $s.env "SIDECAR_PLAN_FILE" -}}
decided by the plan in {{ $s.env.SIDECAR_PLAN_FILE | default "a file" }}; `sidecar plan` in the container prints it
{{- else if not $plans -}}
decided by variables that are read in the cluster; `sidecar plan` in the container prints it
{{- else -}}
{{- range $i, $p := $plans -}}
{{- if $i }}

{{ end -}}
{{- with $p.subscription }}subscription {{ . }}
{{ end -}}
preset       {{ $p.preset }}, {{ $p.queueType }} queues
consumes     {{ $p.queue }}
{{- range $p.bindings }}
{{- $at := splitn ":" 2 . }}
  bound to   {{ $at._0 }}{{ if eq $at._0 $p.exchange }} ({{ $p.exchangeType }}){{ end }}{{ with $at._1 }}, key {{ . }}{{ end }}
{{- end }}
{{- range $p.waits }}
retries in   {{ .queue }} for {{ .delay }}{{ with $p.retryExchange }}, through {{ . }}{{ end }}
{{- else }}
retries      never
{{- end }}
{{- with $p.idle }}
(also)       {{ . }}, for what others dead-letter
{{- end }}
parks in     {{ if $p.dlq }}{{ $p.dlq }}{{ with $p.dlx }}, through {{ . }}{{ end }}, after {{ $p.maxRetries }} retries{{ else }}nothing: after {{ $p.maxRetries }} retries a message is discarded{{ end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Where the app's own messages go in, for people; nothing where it publishes none through the sidecar. */ -}}
{{- define "amqp-sidecar-lib.publishing" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $lines := list -}}
{{- with include "amqp-sidecar-lib.appEnv" . | fromYamlArray -}}
{{- $lines = append $lines (printf "publishes    %s/default/KEY" (first .).value) -}}
{{- end -}}
{{- if include "amqp-sidecar-lib.hasOutbox" $s.env -}}
{{- $made := ternary "made by the Job before this" "made by `sidecar outbox migrate`" $s.values.outbox.migrate.enabled -}}
{{- $lines = append $lines (printf "outbox       %s, %s" ($s.env.SIDECAR_OUTBOX_TABLE | default "outbox") $made) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
