{{- define "amqp-sidecar-lib.problems" -}}
{{- end -}}

{{- /* Fails with everything that is wrong, one line each. */ -}}
{{- define "amqp-sidecar-lib.validate" -}}
{{- with include "amqp-sidecar-lib.problems" . | trim -}}
{{- fail (printf "the values do not fit together:\n\n%s\n" .) -}}
{{- end -}}
{{- end -}}
