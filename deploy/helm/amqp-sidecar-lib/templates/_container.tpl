{{- /* The port of an address such as :9090. */ -}}
{{- define "amqp-sidecar-lib.port" -}}
{{- regexFind "[0-9]+$" (toString .) -}}
{{- end -}}

{{- define "amqp-sidecar-lib.adminPort" -}}
{{- include "amqp-sidecar-lib.port" ((include "amqp-sidecar-lib.settings" . | fromJson).env.SIDECAR_ADMIN_ADDR | default ":9090") -}}
{{- end -}}

{{- /* "yes" where the environment names a database. */ -}}
{{- define "amqp-sidecar-lib.hasOutbox" -}}
{{- if or (hasKey . "SIDECAR_OUTBOX_DSN") (hasKey . "SIDECAR_OUTBOX_DSN_FILE") -}}yes{{- end -}}
{{- end -}}

{{- /* The memory limit: as given, nothing for none, else 128Mi, and more where the app's own messages are in flight as well, by
POST 85Mi and from an outbox 43Mi. What the sidecar holds of all of them is bounded by SIDECAR_MEMORY, three quarters of it. */ -}}
{{- define "amqp-sidecar-lib.memory" -}}
{{- $given := include "amqp-sidecar-lib.text" ((.v.sidecar.resources).limits).memory -}}
{{- if not $given -}}
{{- $limit := 128 -}}
{{- if hasKey .env "SIDECAR_PUBLISH_ADDR" -}}{{- $limit = add $limit 85 -}}{{- end -}}
{{- if include "amqp-sidecar-lib.hasOutbox" .env -}}{{- $limit = add $limit 43 -}}{{- end -}}
{{- printf "%dMi" $limit -}}
{{- else if ne $given "none" -}}
{{- $given -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.resources" -}}
{{- $resources := deepCopy (.v.sidecar.resources | default dict) -}}
{{- $limits := omit ($resources.limits | default dict) "memory" -}}
{{- with include "amqp-sidecar-lib.memory" . -}}
{{- $limits = set $limits "memory" . -}}
{{- end -}}
{{- $resources = omit $resources "limits" -}}
{{- with $limits -}}
{{- $resources = set $resources "limits" . -}}
{{- end -}}
{{- toJson $resources -}}
{{- end -}}

{{- /* An init container, as the one item of a list, that ends the start of a pod whose configuration the sidecar would refuse, and
prints every mistake in it; nothing with sidecar.configCheck=false. It belongs before all others. */ -}}
{{- define "amqp-sidecar-lib.configCheck" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- if $s.values.sidecar.configCheck -}}
- name: {{ $s.values.sidecar.name }}-config
  command: ["/sidecar", "config"]
  {{- include "amqp-sidecar-lib.program" . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* What every container that runs the sidecar's program has. */ -}}
{{- define "amqp-sidecar-lib.program" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $v := $s.values -}}
image: {{ include "amqp-sidecar-lib.image" . | quote }}
{{- with $v.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
env:
  {{- include "amqp-sidecar-lib.env" . | nindent 2 }}
{{- with $v.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "amqp-sidecar-lib.resources" (dict "v" $v "env" $s.env) | fromJson }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.sidecar.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (include "amqp-sidecar-lib.mounts" . | fromJson).mounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The sidecar's container, as the one item of a list. It belongs into initContainers, or, with sidecar.native=false, into
containers. */ -}}
{{- define "amqp-sidecar-lib.container" -}}
{{- include "amqp-sidecar-lib.validate" . -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $v := $s.values -}}
{{- $port := include "amqp-sidecar-lib.adminPort" . | int -}}
- name: {{ $v.sidecar.name }}
  {{- include "amqp-sidecar-lib.program" . | nindent 2 }}
  {{- if $v.sidecar.native }}
  restartPolicy: Always
  {{- end }}
  ports:
    - name: {{ $v.sidecar.name }}-admin
      containerPort: {{ $port }}
      protocol: TCP
  startupProbe:
    httpGet: {path: /startupz, port: {{ $port }}}
    periodSeconds: 1
    failureThreshold: 30
  livenessProbe:
    httpGet: {path: /livez, port: {{ $port }}}
    periodSeconds: 10
    timeoutSeconds: 3
    failureThreshold: 3
  {{- if ne $v.sidecar.readiness "none" }}
  readinessProbe:
    httpGet: {path: {{ ternary "/readyz/broker" "/readyz" (eq $v.sidecar.readiness "broker") }}, port: {{ $port }}}
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 3
  {{- end }}
  {{- if $v.sidecar.preStop }}
  lifecycle:
    preStop:
      exec:
        command: ["/sidecar", "drain"]
  {{- end }}
{{- end -}}

{{- /* The app's side of a stop, for its container's lifecycle. The hook is asked of the pod's address; its port is a number,
because a name would be looked for in the app's own container. */ -}}
{{- define "amqp-sidecar-lib.appPreStop" -}}
{{- if (include "amqp-sidecar-lib.values" . | fromJson).sidecar.preStop -}}
preStop:
  httpGet:
    path: /drained
    port: {{ include "amqp-sidecar-lib.adminPort" . }}
{{- end -}}
{{- end -}}

{{- /* What the pod's specification needs besides containers and volumes. Service links would put a variable for every Service of
the namespace into the environment, and nothing here needs a token for the API server. */ -}}
{{- define "amqp-sidecar-lib.podSpec" -}}
enableServiceLinks: false
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ (include "amqp-sidecar-lib.values" . | fromJson).terminationGracePeriodSeconds | int }}
{{- end -}}

{{- /* Annotations of the pod: the name of the service, and a checksum of where broker.url leads. The sidecar reads a changed Secret
again by itself, but dials another broker only when the link to this one breaks: a new address rolls the pods, a new password does
not. The credentials are not in the checksum, which every user who sees the pod can read. */ -}}
{{- define "amqp-sidecar-lib.podAnnotations" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $own := include "amqp-sidecar-lib.own" . -}}
{{- with $s.env.SIDECAR_SERVICE }}
{{ $own }}/service: {{ . | quote }}
{{- end }}
{{- with $s.values.broker.url }}
checksum/{{ $own }}-broker: {{ regexReplaceAll "://[^@/,]*@" . "://" | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end -}}

{{- /* The Secret that holds broker.url; nothing with an existing one. */ -}}
{{- define "amqp-sidecar-lib.secret" -}}
{{- $v := include "amqp-sidecar-lib.values" . | fromJson -}}
{{- if and $v.broker.url (not $v.broker.existingSecret) -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ printf "%s-broker" (include "amqp-sidecar-lib.name" .) | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- with .labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
type: Opaque
stringData:
  url: {{ $v.broker.url | quote }}
{{- end -}}
{{- end -}}
