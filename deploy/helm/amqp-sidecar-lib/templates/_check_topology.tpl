{{- define "amqp-sidecar-lib.check.topology" -}}
{{- $env := .env -}}
{{- $preset := get $env "SIDECAR_TOPOLOGY" | default "fanout" -}}
{{- $p := get (include "amqp-sidecar-lib.presets" . | fromYaml) $preset -}}
{{- if and $p (not (and (hasKey $env "SIDECAR_TOPOLOGY") (kindIs "invalid" $env.SIDECAR_TOPOLOGY))) (not .v.extraEnvFrom) -}}
{{- if and (not $p.queue) (not (hasKey $env "SIDECAR_QUEUE")) }}
- topology.queue: is empty, and the preset {{ $preset }} has no name of its own for the queue. Name the queue that is consumed
{{- end }}
{{- if and (not $p.bindingKey) (not (hasKey $env "SIDECAR_BINDINGS")) }}
- topology.bindings: is empty, and the preset {{ $preset }} cannot know what the queue listens to. List exchange:key pairs, e.g. [{{ index $p.exchanges 0 | replace "{prefix}" "orders" }}:order.*]
{{- end }}
{{- if and $p.bindingKey (eq (get $env "SIDECAR_EXCHANGE_TYPE" | default "") "direct") (not (hasKey $env "SIDECAR_BINDINGS")) }}
- topology.bindings: is empty, and a direct exchange routes by key. List exchange:key pairs, e.g. [orders.main-exchange:created]
{{- end }}
{{- if ne $preset "dead-letter" }}
{{- with get $env "SIDECAR_MESSAGE_TTL" }}
- {{ $.at.SIDECAR_MESSAGE_TTL }}: only the preset dead-letter lets messages expire, and this is {{ $preset }}: its retry queue would take the expired ones for failures. Leave it empty, or set topology.preset=dead-letter
{{- end }}
{{- if eq (get $env "SIDECAR_DEAD_LETTER" | default "") "disabled" }}
- {{ .at.SIDECAR_DEAD_LETTER }}: only the preset dead-letter can do without a dead-letter queue, and this is {{ $preset }}. Leave it empty, or set topology.preset=dead-letter
{{- end }}
{{- end }}
{{- if and (eq (get $env "SIDECAR_DEAD_LETTER" | default "") "disabled") (or (hasKey $env "SIDECAR_DLX") (hasKey $env "SIDECAR_DLQ")) }}
- {{ .at.SIDECAR_DEAD_LETTER }}: disabled means that nothing is parked, and topology.dlx and topology.dlq name where. Leave those empty
{{- end }}
{{- end -}}
{{- $listed := .v.topology.bindings -}}
{{- $list := kindIs "slice" $listed | and $listed -}}
{{- $seen := list -}}
{{- range ternary $listed (splitList "," (get $env "SIDECAR_BINDINGS" | default "" | toString)) (not (empty $list)) -}}
{{- $item := include "amqp-sidecar-lib.text" . | trimAll " " -}}
{{- $parts := splitn ":" 2 $item -}}
{{- if and (kindIs "string" .) . (not (contains ":" .)) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote . }} is no binding. Write exchange:key; the key may be empty, as in {{ quote (printf "%s:" .) }}
{{- else if and (kindIs "string" .) (hasPrefix ":" .) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote . }} names no exchange, and nothing can be bound to the default exchange. Write exchange:key
{{- else if and (kindIs "string" .) $list (contains "," .) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote . }} has a comma in it, which separates bindings. Make it two items of the list
{{- else if and $item (has $item $seen) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote $item }} is there twice. Leave one out
{{- else if regexMatch "\\p{Cc}" $item }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote $item }} has a line break or another control character in it
{{- else if or (gt (len ($parts._0 | default "")) 255) (gt (len ($parts._1 | default "")) 255) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ trunc 60 $item | quote }}… has more than the 255 bytes that an exchange's name and a key may have
{{- else if and (hasPrefix "amq." $item) (not (has $parts._0 (list "amq.direct" "amq.fanout" "amq.topic" "amq.headers" "amq.match"))) }}
- {{ $.at.SIDECAR_BINDINGS }}: {{ quote $parts._0 }} begins with amq., which the broker keeps for itself, and it has no such exchange
{{- end }}
{{- $seen = append $seen $item -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.retries" -}}
{{- $env := .env -}}
{{- $preset := get $env "SIDECAR_TOPOLOGY" | default "fanout" -}}
{{- $p := get (include "amqp-sidecar-lib.presets" . | fromYaml) $preset | default dict -}}
{{- $delay := hasKey $env "SIDECAR_RETRY_DELAY" -}}
{{- $delays := hasKey $env "SIDECAR_RETRY_DELAYS" -}}
{{- $none := eq (get $env "SIDECAR_RETRY_DELAYS" | default "") "none" -}}
{{- if and $delay $delays }}
- {{ .at.SIDECAR_RETRY_DELAY }}: {{ .at.SIDECAR_RETRY_DELAYS }} is set as well, and retries wait either in one queue or in one for each delay. Keep one of the two
{{- else if and $delay $p.delays }}
- {{ .at.SIDECAR_RETRY_DELAY }}: the preset {{ $preset }} has a queue for each delay. Set topology.retryDelays, e.g. [{{ join ", " $p.delays }}]
{{- end }}
{{- if and $none (ne $preset "delay-ladder") }}
- {{ .at.SIDECAR_RETRY_DELAYS }}: none is for the preset delay-ladder, and this is {{ $preset }}. With topology.maxRetries=0 the first failure parks
{{- end }}
{{- if and $none (ne (get $env "SIDECAR_MAX_RETRIES" | default "0") "0") }}
- {{ .at.SIDECAR_MAX_RETRIES }}: with topology.retryDelays=none there is nowhere to wait. Leave it empty, or 0
{{- end }}
{{- if and $delays (not $none) -}}
{{- $last := 0 -}}
{{- $list := splitList "," (get $env "SIDECAR_RETRY_DELAYS" | default "") -}}
{{- range $list -}}
{{- $ms := include "amqp-sidecar-lib.milliseconds" (trim .) -}}
{{- if and $ms $last (le (int64 $ms) (int64 $last)) }}
- {{ $.at.SIDECAR_RETRY_DELAYS }}: {{ trim . }} is not longer than the one before it. Delays are those of the first, second, … retry and rise
{{- end }}
{{- if $ms -}}{{- $last = int64 $ms -}}{{- end -}}
{{- end -}}
{{- if gt (len $list) 32 }}
- {{ $.at.SIDECAR_RETRY_DELAYS }}: has {{ len $list }} delays and may have 32, each being a queue. The last one repeats
{{- end }}
{{- end -}}
{{- $mode := .v.topology.retryMode | default "" -}}
{{- if and $mode (not (has $mode (list "single" "tiers"))) }}
- topology.retryMode: {{ quote $mode }} is none of single, tiers
{{- end }}
{{- if and (eq $mode "single") (not $delay) (or $delays $p.delays) }}
- topology.retryMode: single means one retry queue, and {{ if $delays }}{{ .at.SIDECAR_RETRY_DELAYS }} has one for each delay{{ else }}the preset {{ $preset }} has one for each delay{{ end }}. {{ if $delays }}Set topology.retryDelay instead{{ else }}Take the preset fanout, per-queue or dead-letter{{ end }}, or set retryMode=tiers
{{- end }}
{{- if and (eq $mode "tiers") (not $delays) (not $p.delays) }}
- topology.retryMode: tiers means a queue for each delay, and {{ if $delay }}topology.retryDelay is one delay for all{{ else }}the preset {{ $preset }} has only one{{ end }}. Set topology.retryDelays, e.g. [5s, 1m, 10m]
{{- end }}
{{- end -}}

{{- /* Names as the broker takes them, and no two objects with one. */ -}}
{{- define "amqp-sidecar-lib.check.names" -}}
{{- $env := .env -}}
{{- with get $env "SIDECAR_SERVICE" }}
{{- if not (regexMatch "^[A-Za-z0-9._][A-Za-z0-9._-]*$" .) }}
- {{ $.at.SIDECAR_SERVICE }}: {{ quote . }} may have letters, digits, ., _ and -, and not begin with -
{{- else if hasPrefix "amq." . }}
- {{ $.at.SIDECAR_SERVICE }}: {{ quote . }} begins with amq., which the broker keeps for itself
{{- else if and (hasSuffix "-" .) (not (contains "-" (trimSuffix "-" .))) (has (get $env "SIDECAR_TOPOLOGY" | default "") (list "topic-tiers" "delay-ladder")) (not (hasKey $env "SIDECAR_QUEUE")) }}
- {{ $.at.SIDECAR_SERVICE }}: the preset names the queue after what follows the first hyphen, and nothing follows it in {{ quote . }}
{{- end }}
{{- end }}
{{- range list "PREFIX" "EXCHANGE" "QUEUE" "RETRY_EXCHANGE" "RETRY_QUEUE" "DLX" "DLQ" -}}
{{- $variable := printf "SIDECAR_%s" . -}}
{{- $value := get $env $variable | default "" -}}
{{- if and (hasPrefix "amq." $value) (not (and (eq . "EXCHANGE") (has $value (list "amq.direct" "amq.fanout" "amq.topic" "amq.headers" "amq.match")))) }}
- {{ get $.at $variable }}: {{ quote $value }} begins with amq., which the broker keeps for itself. Choose another name
{{- end }}
{{- if regexMatch "\\p{Cc}" $value }}
- {{ get $.at $variable }}: {{ quote $value }} has a line break, a tab or another control character in it, which no name may have
{{- else if ne $value (trim $value) }}
- {{ get $.at $variable }}: {{ quote $value }} begins or ends with a space. Write {{ trim $value | quote }}
{{- end }}
{{- if gt (len $value) 255 }}
- {{ get $.at $variable }}: has {{ len $value }} bytes and may have 255
{{- end }}
{{- end -}}
{{- $p := include "amqp-sidecar-lib.plan" . | fromJson -}}
{{- if $p -}}
{{- $reserved := list -}}
{{- range $variable, $value := dict "EXCHANGE" $p.exchange "QUEUE" $p.queue "RETRY_EXCHANGE" $p.retryExchange "RETRY_QUEUE" $p.retryQueue "DLX" $p.dlx "DLQ" $p.dlq -}}
{{- if and $value (hasPrefix "amq." $value) (not (hasKey $env (printf "SIDECAR_%s" $variable))) -}}{{- $reserved = append $reserved $value -}}{{- end -}}
{{- end -}}
{{- if and $reserved (hasPrefix "amq-" (get $env "SIDECAR_SERVICE" | default "")) (not (hasKey $env "SIDECAR_PREFIX")) }}
- {{ .at.SIDECAR_SERVICE }}: {{ quote $env.SIDECAR_SERVICE }} makes the prefix amq, so names such as {{ first $reserved }} begin with amq., which the broker keeps for itself. Set topology.prefix
{{- end }}
{{- $queues := list $p.queue $p.dlq ($p.idle | default "") -}}
{{- range $p.waits -}}{{- $queues = append $queues .queue -}}{{- end -}}
{{- range $what, $all := dict "queue" (compact $queues) "exchange" (compact (list $p.exchange $p.retryExchange $p.dlx)) -}}
{{- $seen := list -}}
{{- range $all -}}
{{- if has . $seen }}
- topology: two {{ $what }}s would have one name, {{ quote . }}, and messages of one would end in the other. Give {{ ternary "queue, retryQueue and dlq" "exchange, retryExchange and dlx" (eq $what "queue") }} different names
{{- end }}
{{- if and (gt (len .) 255) }}
- service.name: makes the {{ $what }} {{ trunc 60 . | quote }}…, which has {{ len . }} bytes and may have 255. Take a shorter one
{{- end }}
{{- $seen = append $seen . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
