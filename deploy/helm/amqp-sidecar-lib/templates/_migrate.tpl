{{- /* Environment of `sidecar outbox migrate`: the outbox, and what the service's name and topology are checked by. Nothing else:
the Job runs before the objects of the release are there, and could wait for the Secret of broker.url for ever. */ -}}
{{- define "amqp-sidecar-lib.migrateEnv" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $own := not (empty $s.values.outbox.migrate.existingSecret) -}}
{{- $list := list -}}
{{- $prefixes := list -}}
{{- range include "amqp-sidecar-lib.each" $s | fromJsonArray -}}{{- $prefixes = include "amqp-sidecar-lib.prefix" .name | append $prefixes -}}{{- end -}}
{{- range include "amqp-sidecar-lib.env" . | fromYamlArray -}}
{{- $of := .name -}}
{{- range $prefixes -}}{{- if hasPrefix . $of -}}{{- $of = trimPrefix . $of | printf "SIDECAR_%s" -}}{{- end -}}{{- end -}}
{{- $dsn := has .name (list "SIDECAR_OUTBOX_DSN" "SIDECAR_OUTBOX_DSN_FILE") -}}
{{- if and (regexMatch "^SIDECAR_(SUBSCRIPTIONS$|OUTBOX_|LOG_|TOPOLOGY|SERVICE$|PREFIX$|QUEUE|EXCHANGE|BINDINGS$|RETRY_(DELAY|EXCHANGE|QUEUE)|DL|DEAD_LETTER$|MAX_RETRIES$|MESSAGE_TTL$|ORDER_)" $of) (not (and $own $dsn)) -}}
{{- $list = append $list . -}}
{{- end -}}
{{- end -}}
{{- if $own -}}
{{- $list = append $list (dict "name" "SIDECAR_OUTBOX_DSN_FILE" "value" (printf "%s/dsn" (include "amqp-sidecar-lib.directories" . | fromYaml).outbox)) -}}
{{- end -}}
{{- toYaml $list -}}
{{- end -}}

{{- /* The specification of a pod that makes the outbox's table, or adds to it what a newer sidecar needs. */ -}}
{{- define "amqp-sidecar-lib.migrate" -}}
{{- include "amqp-sidecar-lib.validate" . -}}
{{- $v := (include "amqp-sidecar-lib.settings" . | fromJson).values -}}
{{- $m := $v.outbox.migrate -}}
{{- $database := $v.outbox -}}
{{- if $m.existingSecret -}}
{{- $database = merge (dict "existingSecret" $m.existingSecret "existingSecretKey" $m.existingSecretKey) $v.outbox -}}
{{- end -}}
{{- $secrets := include "amqp-sidecar-lib.outboxSecrets" $database | fromJson -}}
{{- $mounted := include "amqp-sidecar-lib.mountedSecrets" (list (include "amqp-sidecar-lib.own" .) $secrets) | fromJson -}}
restartPolicy: Never
enableServiceLinks: false
automountServiceAccountToken: false
containers:
  - name: outbox-migrate
    image: {{ include "amqp-sidecar-lib.image" . | quote }}
    {{- with $v.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    command: [/sidecar, outbox, migrate{{ if not $m.notify }}, --no-notify{{ end }}]
    env:
      {{- include "amqp-sidecar-lib.migrateEnv" . | nindent 6 }}
    resources:
      requests: {cpu: 20m, memory: 32Mi}
      limits: {memory: 128Mi}
    {{- with $v.sidecar.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $mounted.mounts }}
    volumeMounts:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with $mounted.volumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
