{{- /* What the chart's objects find the pods by cannot be changed. */ -}}
{{- define "amqp-sidecar.check.labels" -}}
{{- range $key := list "commonLabels" "podLabels" -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey (get $.root.Values $key | default dict) $label }}
- {{ $key }}: {{ $label }} is what the Deployment finds its pods by, and the chart sets it. Leave it out{{ if hasSuffix "name" $label }}; nameOverride changes it{{ end }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
