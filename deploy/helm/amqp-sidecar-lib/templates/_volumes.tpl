{{- /* Volumes of the pod, and where the sidecar's container mounts them: JSON {volumes, mounts}. Secrets are mounted into the
sidecar's container alone, so 0444 lets its user read them whatever the pod's fsGroup is. */ -}}
{{- define "amqp-sidecar-lib.mounts" -}}
{{- $s := include "amqp-sidecar-lib.settings" . | fromJson -}}
{{- $v := $s.values -}}
{{- $dir := include "amqp-sidecar-lib.directories" . | fromYaml -}}
{{- $own := include "amqp-sidecar-lib.own" . -}}
{{- $secrets := dict -}}
{{- with $v.broker -}}
{{- if or .url .existingSecret -}}
{{- $items := list (dict "key" (ternary "url" .existingSecretKey (empty .existingSecret)) "path" "url") -}}
{{- if and .existingSecret .usernameKey -}}{{- $items = append $items (dict "key" .usernameKey "path" "username") -}}{{- end -}}
{{- if and .existingSecret .passwordKey -}}{{- $items = append $items (dict "key" .passwordKey "path" "password") -}}{{- end -}}
{{- $_ := set $secrets "broker" (dict "name" (.existingSecret | default (printf "%s-broker" (include "amqp-sidecar-lib.name" $))) "items" $items) -}}
{{- end -}}
{{- if .tls.existingSecret -}}
{{- $items := list -}}
{{- range $key, $path := dict "caKey" "ca.crt" "certKey" "tls.crt" "keyKey" "tls.key" -}}
{{- with get $v.broker.tls $key -}}{{- $items = append $items (dict "key" . "path" $path) -}}{{- end -}}
{{- end -}}
{{- $_ := set $secrets "tls" (dict "name" .tls.existingSecret "items" $items) -}}
{{- end -}}
{{- end -}}
{{- with $v.sidecar.control -}}
{{- if .existingSecret -}}
{{- $items := list (dict "key" .tokenKey "path" "token") -}}
{{- with .readTokenKey -}}{{- $items = append $items (dict "key" . "path" "read-token") -}}{{- end -}}
{{- $_ := set $secrets "control" (dict "name" .existingSecret "items" $items) -}}
{{- end -}}
{{- end -}}
{{- with $v.app.token -}}
{{- if .existingSecret -}}
{{- $_ := set $secrets "app" (dict "name" .existingSecret "items" (list (dict "key" .existingSecretKey "path" "token"))) -}}
{{- end -}}
{{- end -}}
{{- with $v.publish -}}
{{- if .existingSecret -}}
{{- $_ := set $secrets "publish" (dict "name" .existingSecret "items" (list (dict "key" .tokenKey "path" "token"))) -}}
{{- end -}}
{{- end -}}
{{- $secrets = merge $secrets (include "amqp-sidecar-lib.outboxSecrets" $v.outbox | fromJson) -}}
{{- $mounted := include "amqp-sidecar-lib.mountedSecrets" (list $own $secrets) | fromJson -}}
{{- $volumes := $mounted.volumes -}}
{{- $mounts := $mounted.mounts -}}
{{- /* On disk, and a little more than the sidecar uses at most: a pod that uses more is evicted. */ -}}
{{- if not (hasKey $s.given "SIDECAR_SPOOL_DIR") -}}
{{- $volumes = append $volumes (dict "name" (printf "%s-spool" $own) "emptyDir" (dict "sizeLimit" "1100Mi")) -}}
{{- $mounts = append $mounts (dict "name" (printf "%s-spool" $own) "mountPath" $dir.spool) -}}
{{- end -}}
{{- dict "volumes" (concat $volumes $v.extraVolumes) "mounts" (concat $mounts $v.extraVolumeMounts) | toJson -}}
{{- end -}}

{{- /* The same of (list prefix {directory: {name, items}}), for Secrets. */ -}}
{{- define "amqp-sidecar-lib.mountedSecrets" -}}
{{- $dir := include "amqp-sidecar-lib.directories" . | fromYaml -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- range $what, $x := last . -}}
{{- $name := printf "%s-%s" (first $) $what -}}
{{- $volumes = append $volumes (dict "name" $name "secret" (dict "secretName" $x.name "defaultMode" 0444 "items" $x.items)) -}}
{{- $mounts = append $mounts (dict "name" $name "mountPath" (get $dir $what) "readOnly" true) -}}
{{- end -}}
{{- dict "volumes" $volumes "mounts" $mounts | toJson -}}
{{- end -}}

{{- /* What the database needs, of values of the section outbox: {directory: {name, items}}, as JSON. */ -}}
{{- define "amqp-sidecar-lib.outboxSecrets" -}}
{{- $secrets := dict -}}
{{- if .existingSecret -}}
{{- $_ := set $secrets "outbox" (dict "name" .existingSecret "items" (list (dict "key" .existingSecretKey "path" "dsn"))) -}}
{{- end -}}
{{- if .tls.existingSecret -}}
{{- $items := list -}}
{{- range $key, $path := dict "caKey" "ca.crt" "certKey" "tls.crt" "keyKey" "tls.key" -}}
{{- with get $.tls $key -}}{{- $items = append $items (dict "key" . "path" $path) -}}{{- end -}}
{{- end -}}
{{- $_ := set $secrets "outbox-tls" (dict "name" .tls.existingSecret "items" $items) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{- define "amqp-sidecar-lib.volumes" -}}
{{- with (include "amqp-sidecar-lib.mounts" . | fromJson).volumes -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
