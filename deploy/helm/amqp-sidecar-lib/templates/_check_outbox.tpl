{{- define "amqp-sidecar-lib.check.outbox" -}}
{{- $o := .v.outbox -}}
{{- $on := or (include "amqp-sidecar-lib.hasOutbox" .env) .v.extraEnvFrom -}}
{{- with include "amqp-sidecar-lib.check.unused" (dict "section" "outbox" "values" $o "keys" (list "table" "columns" "pollInterval" "retention")) }}
{{- if not $on }}
- outbox.existingSecret: is empty, so there is no database, and {{ . }} would do nothing. Put its address into a Secret (kubectl create secret generic NAME --from-literal=dsn='postgres://user:password@host/name?sslmode=verify-full') and set outbox.existingSecret=NAME
{{- end }}
{{- end }}
{{- $t := $o.tls }}
{{- if and $t.existingSecret (not $on) }}
- outbox.tls.existingSecret: there is no database that is checked with these certificates. Set outbox.existingSecret, or leave outbox.tls empty
{{- end }}
{{- include "amqp-sidecar-lib.check.certificates" (dict "at" "outbox.tls" "tls" $t) }}
{{- include "amqp-sidecar-lib.check.migrate" . }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.migrate" -}}
{{- $m := .v.outbox.migrate -}}
{{- range $key := list "enabled" "notify" }}
{{- if not (kindIs "bool" (get $m $key)) }}
- outbox.migrate.{{ $key }}: {{ get $m $key | toJson }} is neither true nor false
{{- end }}
{{- end }}
{{- if and $m.enabled (not $m.existingSecret) (not .v.outbox.existingSecret) (not (include "amqp-sidecar-lib.hasOutbox" .given)) }}
- outbox.migrate: there is no database to make the table in. Set outbox.existingSecret, or outbox.migrate.existingSecret to a Secret with the address of a role that may create tables
{{- end }}
{{- if and $m.existingSecret (not $m.enabled) }}
- outbox.migrate.existingSecret: outbox.migrate.enabled is false, so nothing reads it. Set outbox.migrate.enabled=true, or leave it empty
{{- end }}
{{- end -}}
