{{- /* The pod template of whatever runs it. */ -}}
{{- define "amqp-sidecar.pod" -}}
{{- $lib := dict "root" . "values" .Values "name" (include "amqp-sidecar.fullname" .) "appVersion" .Chart.AppVersion -}}
{{- $env := concat (include "amqp-sidecar-lib.appEnv" $lib | fromYamlArray) (include "amqp-sidecar-lib.texts" .Values.app.env | fromJsonArray) -}}
{{- $app := merge (dict "env" $env) .Values.app -}}
{{- $native := (include "amqp-sidecar-lib.values" $lib | fromJson).sidecar.native -}}
metadata:
  labels:
    {{- /* Not the chart's version: an upgrade that changes nothing in a pod shall not replace it. */}}
    {{- include "amqp-sidecar.over" (list .Values.commonLabels .Values.podLabels (include "amqp-sidecar.selectorLabels" . | fromYaml)) | nindent 4 }}
  annotations:
    {{- $own := include "amqp-sidecar-lib.podAnnotations" $lib | fromYaml }}
    {{- $default := dict "kubectl.kubernetes.io/default-container" "app" }}
    {{- include "amqp-sidecar.over" (list $default $own .Values.commonAnnotations .Values.podAnnotations) | nindent 4 }}
spec:
  {{- $spec := include "amqp-sidecar-lib.podSpec" $lib | fromYaml }}
  {{- $spec = set $spec "automountServiceAccountToken" .Values.serviceAccount.automount }}
  {{- toYaml $spec | nindent 2 }}
  serviceAccountName: {{ include "amqp-sidecar.serviceAccountName" . | quote }}
  {{- if ne .Values.workload.kind "Deployment" }}
  restartPolicy: {{ .Values.workload.restartPolicy }}
  {{- end }}
  {{- range $field := list "imagePullSecrets" "affinity" "tolerations" "nodeSelector" "priorityClassName" "runtimeClassName" }}
  {{- with get $.Values $field }}
  {{- toYaml (dict $field .) | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "amqp-sidecar.selectorLabels" $ | fromYaml))) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- $check := include "amqp-sidecar-lib.configCheck" $lib }}
  {{- if or $native $check .Values.extraInitContainers }}
  initContainers:
    {{- with $check }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $native }}
    {{- include "amqp-sidecar-lib.container" $lib | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: app
      image: {{ include "amqp-sidecar-lib.reference" (dict "image" $app.image "tag" "latest") | quote }}
      {{- with $app.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      {{- range $field := list "command" "args" "env" "envFrom" "resources" "securityContext" "volumeMounts" "startupProbe" "livenessProbe" "readinessProbe" }}
      {{- with get $app $field }}
      {{ $field }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with merge (dict) (include "amqp-sidecar-lib.appPreStop" $lib | fromYaml) $app.lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- if not $native }}
    {{- include "amqp-sidecar-lib.container" $lib | nindent 4 }}
    {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "amqp-sidecar-lib.volumes" $lib }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* The specification of a Job. */ -}}
{{- define "amqp-sidecar.job" -}}
{{- range $field := list "parallelism" "completions" "backoffLimit" "activeDeadlineSeconds" "ttlSecondsAfterFinished" }}
{{- with include "amqp-sidecar-lib.text" (get $.Values.workload $field) }}
{{ $field }}: {{ . }}
{{- end }}
{{- end }}
template:
  {{- include "amqp-sidecar.pod" . | nindent 2 }}
{{- end -}}
