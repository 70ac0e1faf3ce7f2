{{- /* What is wrong, one line each: what, why, and what to do. Everything is judged by the environment that the sidecar would
get, so it does not matter whether a setting came as a value or through extraEnv; variables that only the cluster knows
(valueFrom) are left to the sidecar, which ends with exit 64 and says the same. */ -}}
{{- define "amqp-sidecar-lib.problems" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- range $name, $text := $s.env -}}
{{- if and (contains "$(" (toString $text)) (hasKey $s.given $name) -}}{{- $_ := set $s.env $name nil -}}{{- end -}}
{{- end -}}
{{- $c := dict "root" .root "values" .values "v" $s.values "typed" $s.typed "given" $s.given "env" $s.env "at" $s.at -}}
{{- range $part := list "keys" "extraEnv" "rules" "image" "broker" "secretKeys" "tls" "app" "topology" "retries" "names" "times" "headers" "flow" "control" "publish" "outbox" "pod" "tracing" -}}
{{- with include (printf "amqp-sidecar-lib.check.%s" $part) $c | trim }}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fails with everything that is wrong. */ -}}
{{- define "amqp-sidecar-lib.validate" -}}
{{- include "amqp-sidecar-lib.refuse" (include "amqp-sidecar-lib.problems" .) -}}
{{- end -}}

{{- define "amqp-sidecar-lib.refuse" -}}
{{- with . | trim -}}
{{- fail (printf "these values do not fit together:\n\n%s\n" (regexReplaceAll "\n\n+" . "\n")) -}}
{{- end -}}
{{- end -}}
