{{- /* What is wrong, one line each: what, why, and what to do. These are the mistakes that only Helm can see: a value that
nothing reads, a key without its Secret, two values for one variable, a pod that could not run. What the sidecar can see it
says itself, all of it at once: the init container sidecar-config runs `sidecar config` before the app starts. */ -}}
{{- define "amqp-sidecar-lib.problems" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- range $name, $text := $s.env -}}
{{- if and (contains "$(" (toString $text)) (hasKey $s.given $name) -}}{{- $_ := set $s.env $name nil -}}{{- end -}}
{{- end -}}
{{- $c := dict "root" .root "values" .values "known" .known "beside" .beside "v" $s.values "typed" $s.typed "entries" $s.entries "given" $s.given "env" $s.env "at" $s.at -}}
{{- range $part := list "keys" "words" "extraEnv" "image" "secrets" "broker" "tls" "app" "control" "publish" "outbox" "pod" "beside" "tracing" -}}
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
