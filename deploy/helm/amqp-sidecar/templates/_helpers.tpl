{{- define "amqp-sidecar.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* The pod of helm test has a name of its own: nothing that selects the app's pods shall count it. */ -}}
{{- define "amqp-sidecar.testName" -}}
{{- include "amqp-sidecar.name" . }}-test
{{- end -}}

{{- define "amqp-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ include "amqp-sidecar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "amqp-sidecar.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "amqp-sidecar.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* metadata of an object: (list $ "-suffix" labels annotations). */ -}}
{{- define "amqp-sidecar.metadata" -}}
{{- $ := index . 0 -}}
name: {{ include "amqp-sidecar.fullname" $ }}{{ index . 1 }}
namespace: {{ $.Release.Namespace }}
labels:
  {{- include "amqp-sidecar.labels" $ | nindent 2 }}
  {{- with index . 2 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (index . 3 | default dict) ($.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "amqp-sidecar.serviceAccountName" -}}
{{- if (.Values.serviceAccount).create -}}
{{- .Values.serviceAccount.name | default (include "amqp-sidecar.fullname" .) -}}
{{- else -}}
{{- (.Values.serviceAccount).name | default "default" -}}
{{- end -}}
{{- end -}}

{{- /* How fast pods come and go. One that goes gives its messages back, so fewer are wanted only when that lasts. */ -}}
{{- define "amqp-sidecar.behavior" -}}
{{- $default := dict "scaleDown" (dict "stabilizationWindowSeconds" (int .Values.autoscaling.scaleDownStabilizationSeconds)) -}}
{{- toYaml (merge (dict) (.Values.autoscaling.behavior | default dict) (ternary (dict) $default (hasKey (.Values.autoscaling.behavior | default dict) "scaleDown"))) -}}
{{- end -}}
