{{- /* The names of the queues that the sidecar consumes, as a JSON list; [] where that depends on a file or on a variable that is read in the
cluster. `sidecar plan` prints everything else of the topology. */ -}}
{{- define "amqp-sidecar-lib.queues" -}}
{{- $queues := list -}}
{{- $each := include "amqp-sidecar-lib.settings" . | fromJson | include "amqp-sidecar-lib.each" | fromJsonArray -}}
{{- range $each -}}
{{- with include "amqp-sidecar-lib.queue" . -}}{{- $queues = append $queues . -}}{{- end -}}
{{- end -}}
{{- ternary $queues list (eq (len $queues) (len $each)) | toJson -}}
{{- end -}}

{{- /* The name of the queue of one of amqp-sidecar-lib.each; nothing where it is not known. */ -}}
{{- define "amqp-sidecar-lib.queue" -}}
{{- $env := .env -}}
{{- $known := not (hasKey $env "SIDECAR_PLAN_FILE") -}}
{{- range tuple "SERVICE" "TOPOLOGY" "PREFIX" "QUEUE" -}}
{{- $name := printf "SIDECAR_%s" . -}}
{{- if and (hasKey $env $name) (kindIs "invalid" (get $env $name)) -}}{{- $known = false -}}{{- end -}}
{{- end -}}
{{- $presets := include "amqp-sidecar-lib.presets" . | fromYaml -}}
{{- $templates := get $presets ($env.SIDECAR_TOPOLOGY | default "fanout") | default dict -}}
{{- if $known -}}
{{- $service := $env.SIDECAR_SERVICE -}}
{{- $cut := splitn "-" 2 $service -}}
{{- $hyphen := contains "-" $service -}}
{{- $prefix := $env.SIDECAR_PREFIX | default (ternary $cut._0 "default" $hyphen) -}}
{{- $queue := $env.SIDECAR_QUEUE | default (ternary $templates.subscribed $templates.queue (not (empty .name))) -}}
{{- range $placeholder, $value := dict "{service}" $service "{rest}" (ternary $cut._1 $service $hyphen) "{prefix}" $prefix "{subscription}" .name -}}
{{- $queue = replace $placeholder ($value | default "") ($queue | default "") -}}
{{- end -}}
{{- $queue -}}
{{- end -}}
{{- end -}}

{{- /* What is consumed, for people. */ -}}
{{- define "amqp-sidecar-lib.topology" -}}
{{- $queues := include "amqp-sidecar-lib.queues" . | fromJsonArray -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- if eq ($s.env.SIDECAR_CONSUME | default "") "off" -}}
consumes     nothing, and declares nothing ({{ $s.at.SIDECAR_CONSUME }} is off)
{{- else if hasKey $s.env "SIDECAR_PLAN_FILE" -}}
decided by the plan in {{ $s.env.SIDECAR_PLAN_FILE | default "a file" }}; `sidecar plan` in the container prints it
{{- else if not $queues -}}
decided by variables that are read in the cluster; `sidecar plan` in the container prints it
{{- else -}}
consumes     {{ $queues | join ", " }}
topology     {{ $s.env.SIDECAR_TOPOLOGY | default "fanout" }}; `sidecar plan` in the container prints all exchanges, queues and routes
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
