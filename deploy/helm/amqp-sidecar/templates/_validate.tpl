{{- define "amqp-sidecar.validate" -}}
{{- end -}}
