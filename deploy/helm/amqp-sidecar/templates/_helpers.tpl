{{- define "amqp-sidecar.fullname" -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if include "amqp-sidecar-lib.instance" . | ne .Release.Name -}}
{{- $name = printf "%s-%s" .Release.Name (include "amqp-sidecar-lib.part" (list . .Values.nameOverride)) -}}
{{- else if not (contains .Values.nameOverride .Release.Name) -}}
{{- $name = printf "%s-%s" .Release.Name .Values.nameOverride -}}
{{- end -}}
{{- include "amqp-sidecar-lib.shorten" $name -}}
{{- end -}}

{{- define "amqp-sidecar.name" -}}
{{- $part := include "amqp-sidecar-lib.part" (list . .Values.nameOverride) -}}
{{- include "amqp-sidecar-lib.shorten" ($part | default .Values.nameOverride | default .Chart.Name) -}}
{{- end -}}

{{- /* The pod of helm test has a name of its own: nothing that selects the app's pods shall count it. */ -}}
{{- define "amqp-sidecar.testName" -}}
{{- include "amqp-sidecar.name" . }}-test
{{- end -}}

{{- define "amqp-sidecar.migrateName" -}}
{{- include "amqp-sidecar.name" . }}-migrate
{{- end -}}

{{- define "amqp-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ include "amqp-sidecar.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Maps, as YAML: where two have a key, the later one counts. What selects the pods is always the chart's. */ -}}
{{- define "amqp-sidecar.over" -}}
{{- $all := dict -}}
{{- range . -}}
{{- range $key, $value := . -}}{{- $_ := set $all $key $value -}}{{- end -}}
{{- end -}}
{{- with $all -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.labels" -}}
{{- $chart := printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-._" -}}
{{- $own := dict "helm.sh/chart" $chart "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service -}}
{{- include "amqp-sidecar.over" (list $own .Values.commonLabels (include "amqp-sidecar.selectorLabels" . | fromYaml)) -}}
{{- end -}}

{{- /* metadata of an object: (list $ "-suffix" labels annotations). */ -}}
{{- define "amqp-sidecar.metadata" -}}
{{- $ := index . 0 -}}
name: {{ printf "%s%s" (include "amqp-sidecar.fullname" $) (index . 1) | quote }}
namespace: {{ $.Release.Namespace | quote }}
labels:
  {{- include "amqp-sidecar.over" (list (include "amqp-sidecar.labels" $ | fromYaml) (index . 2)) | nindent 2 }}
{{- with include "amqp-sidecar.over" (list $.Values.commonAnnotations (index . 3)) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "amqp-sidecar.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "amqp-sidecar.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- /* How fast pods come and go. One that goes gives its messages back, so fewer are wanted only when that lasts. */ -}}
{{- define "amqp-sidecar.behavior" -}}
{{- $default := dict "scaleDown" (dict "stabilizationWindowSeconds" (int .Values.autoscaling.scaleDownStabilizationSeconds)) -}}
{{- toYaml (merge (dict) .Values.autoscaling.behavior (ternary (dict) $default (hasKey .Values.autoscaling.behavior "scaleDown"))) -}}
{{- end -}}
