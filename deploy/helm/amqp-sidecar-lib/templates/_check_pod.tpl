{{- define "amqp-sidecar-lib.check.app" -}}
{{- $a := .v.app -}}
{{- if and $a.url (or $a.port $a.path) }}
- app.url: port and path are set as well, and the URL has both. Keep app.url, or app.port and app.path
{{- end }}
{{- $url := get .env "SIDECAR_APP_URL" | default "http://127.0.0.1:8080/" -}}
{{- with include "amqp-sidecar-lib.wrong.app" $url }}
- {{ ternary "app.path" $.at.SIDECAR_APP_URL (not (empty $a.path)) }}: {{ quote $url }} {{ . }}, and the sidecar refuses that. Messages are POSTed to exactly this URL: write http://127.0.0.1:8080/path, or unix:///path/to.sock:/path
{{- else -}}
{{- $local := regexFind "^https?://(127\\.[0-9.]+|localhost|\\[::1\\])(:[0-9]+)?" $url -}}
{{- if $local -}}
{{- $port := regexFind ":[0-9]+$" $local | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https" $url)) -}}
{{- range $variable, $address := include "amqp-sidecar-lib.listeners" $ | fromJson -}}
{{- if eq $port (include "amqp-sidecar-lib.port" $address) }}
- {{ $.at.SIDECAR_APP_URL }}: {{ $port }} is the port of the sidecar's own listener ({{ $variable }}), and the two share the pod's network. Let the app listen on another one, or move the sidecar's ({{ ternary "publish.address" (get $.at $variable) (eq (get $.at $variable) "publish.enabled") }})
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with get .env "SIDECAR_APP_HEALTH_PATH" }}
{{- $path := . }}
{{- with include "amqp-sidecar-lib.wrong.path" . }}
- {{ $.at.SIDECAR_APP_HEALTH_PATH }}: {{ quote $path }} {{ . }}. It is a path that begins with one /, e.g. /healthz
{{- end }}
{{- end }}
{{- if and $a.tokenSecret.name (not $a.tokenSecret.key) }}
- app.tokenSecret.key: is empty. Name the key of {{ $a.tokenSecret.name }} that holds the token
{{- end }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.times" -}}
{{- $env := .env -}}
{{- $ms := dict -}}
{{- range $variable, $default := dict "APP_TIMEOUT" "30s" "REQUEUE_DELAY_MIN" "1s" "REQUEUE_DELAY_MAX" "5s" "RETRY_AFTER_MAX" "5m" -}}
{{- $_ := set $ms $variable (include "amqp-sidecar-lib.milliseconds" (get $env (printf "SIDECAR_%s" $variable) | default $default) | int64) -}}
{{- end -}}
{{- if gt (int64 $ms.REQUEUE_DELAY_MIN) (int64 $ms.REQUEUE_DELAY_MAX) }}
- {{ .at.SIDECAR_REQUEUE_DELAY_MIN }}: is longer than {{ .at.SIDECAR_REQUEUE_DELAY_MAX }} ({{ get $env "SIDECAR_REQUEUE_DELAY_MAX" | default "5s" }}). A 425 sleeps for a time between the two: raise the latter
{{- end }}
{{- range $variable := list "RETRY_AFTER_MAX" "REQUEUE_DELAY_MAX" -}}
{{- if gt (add (get $ms $variable) $ms.APP_TIMEOUT) 1500000 }}
- {{ get $.at (printf "SIDECAR_%s" $variable) }}: together with {{ $.at.SIDECAR_APP_TIMEOUT }} it is more than 25m, and after 30 minutes the broker takes an unsettled message away. Lower one of them
{{- end }}
{{- end -}}
{{- $seen := list -}}
{{- range splitList "," (get $env "SIDECAR_PARK_ON_STATUS" | default "") -}}
{{- with trim . -}}
{{- if not (regexMatch "^[345][0-9][0-9]$" .) }}
- {{ $.at.SIDECAR_PARK_ON_STATUS }}: {{ quote . }} is no status from 300 to 599{{ if regexMatch "^2" . }}; a 2xx means that the message is done{{ end }}
{{- else if has . $seen }}
- {{ $.at.SIDECAR_PARK_ON_STATUS }}: {{ . }} is there twice
{{- end }}
{{- $seen = append $seen . -}}
{{- end -}}
{{- end -}}
{{- range $variable := list "SIDECAR_CRASH_DIR" "SIDECAR_SPOOL_DIR" }}
{{- with get $env $variable }}
{{- if not (hasPrefix "/" .) }}
- {{ get $.at $variable }}: {{ quote . }} is no absolute path
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.flow" -}}
{{- $concurrency := get .env "SIDECAR_CONCURRENCY" | default "10" | int64 -}}
{{- $prefetch := get .env "SIDECAR_PREFETCH" | default "0" | int64 -}}
{{- if and $prefetch (lt $prefetch $concurrency) }}
- {{ .at.SIDECAR_PREFETCH }}: {{ $prefetch }} is less than the concurrency ({{ $concurrency }}), so some workers would never have a message. Raise it to {{ $concurrency }} at least, or leave it empty for {{ mul 2 $concurrency }}
{{- end }}
{{- /* What is in hand shares SIDECAR_MEMORY; one message that does not fit into it could never be held. */ -}}
{{- $limit := include "amqp-sidecar-lib.memory" . -}}
{{- $bytes := include "amqp-sidecar-lib.bytes" $limit -}}
{{- $set := get .env "SIDECAR_MEMORY" | default "" -}}
{{- $budget := include "amqp-sidecar-lib.bytes" $set | default (ternary "268435456" (mul (div (int64 $bytes) 4) 3 | toString) (empty $limit)) | int64 -}}
{{- $holder := ternary "256MiB, what the sidecar holds without a limit" (printf "three quarters of sidecar.resources.limits.memory (%s)" $limit) (empty $limit) -}}
{{- if $set -}}{{- $holder = printf "%s (%s)" .at.SIDECAR_MEMORY $set -}}{{- end -}}
{{- if and $limit (not $bytes) }}
- sidecar.resources.limits.memory: {{ quote $limit }} is no quantity. Write 128Mi, none for no limit, or leave it empty
{{- else if and $set $bytes (ge $budget (int64 $bytes)) }}
- {{ .at.SIDECAR_MEMORY }}: {{ $set }} leaves nothing of sidecar.resources.limits.memory ({{ $limit }}) to the program itself, and the sidecar refuses to start. Leave it empty for three quarters of the limit
{{- else -}}
{{- range $variable := ternary (list "SIDECAR_MAX_BODY" "SIDECAR_PUBLISH_MAX_BODY") (list "SIDECAR_MAX_BODY") (hasKey .env "SIDECAR_PUBLISH_ADDR") -}}
{{- $size := get $.env $variable | default "16MiB" -}}
{{- $needs := include "amqp-sidecar-lib.bytes" $size | int64 -}}
{{- if and (gt $needs $budget) (le $needs 536870912) }}
- {{ get $.at $variable }}: one message of {{ $size }} does not fit into {{ $holder }}, and the sidecar refuses to start. Lower it, or raise the latter
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.control" -}}
{{- $c := .v.sidecar.control -}}
{{- $admin := get .env "SIDECAR_ADMIN_ADDR" | default ":9090" -}}
{{- $address := get .env "SIDECAR_CONTROL_ADDR" | default "127.0.0.1:9091" -}}
{{- $loopback := "^(127\\.[0-9.]+|localhost|\\[::1\\]):[0-9]+$" -}}
{{- if include "amqp-sidecar-lib.wrong.listen" $admin }}
- {{ .at.SIDECAR_ADMIN_ADDR }}: {{ quote $admin }} {{ include "amqp-sidecar-lib.wrong.listen" $admin }}. Write :9090
{{- else if regexMatch $loopback $admin }}
- {{ .at.SIDECAR_ADMIN_ADDR }}: {{ quote $admin }} is loopback, and probes, the app's preStop hook and Prometheus come to the pod's address. Write :{{ include "amqp-sidecar-lib.port" $admin }}
{{- else if hasSuffix ":0" $admin }}
- {{ .at.SIDECAR_ADMIN_ADDR }}: port 0 is chosen at the start, and probes have to know it before. Write :9090
{{- end }}
{{- if include "amqp-sidecar-lib.wrong.listen" $address }}
- {{ .at.SIDECAR_CONTROL_ADDR }}: {{ quote $address }} {{ include "amqp-sidecar-lib.wrong.listen" $address }}. Write 127.0.0.1:9091, or :9091 for all of the pod's addresses (with a token)
{{- else }}
{{- if eq (include "amqp-sidecar-lib.port" $address) (include "amqp-sidecar-lib.port" $admin) }}
- {{ .at.SIDECAR_CONTROL_ADDR }}: has the port of {{ .at.SIDECAR_ADMIN_ADDR }} ({{ include "amqp-sidecar-lib.port" $admin }}), and two listeners cannot share one. Write 127.0.0.1:9091
{{- end }}
{{- if and (hasSuffix ":0" $address) .v.sidecar.preStop }}
- {{ .at.SIDECAR_CONTROL_ADDR }}: port 0 is chosen at the start, and the preStop hook (sidecar drain) has to know it. Write 127.0.0.1:9091
{{- end }}
{{- $token := or $c.existingSecret (hasKey .given "SIDECAR_CONTROL_TOKEN") (hasKey .given "SIDECAR_CONTROL_TOKEN_FILE") .v.extraEnvFrom -}}
{{- if and (not (regexMatch $loopback $address)) (not $token) }}
- {{ .at.SIDECAR_CONTROL_ADDR }}: {{ quote $address }} can be reached from other pods, which could drain the sidecar and read and delete parked messages: the sidecar refuses to start so without a token. Set sidecar.control.existingSecret to a Secret with one of 16 characters or more (key {{ $c.tokenKey | default "token" }}), or write 127.0.0.1:9091
{{- end }}
{{- end }}
{{- if and $c.existingSecret (not $c.tokenKey) }}
- sidecar.control.tokenKey: is empty. {{ if $c.readTokenKey }}The read token needs one that may change things. {{ end }}Name the key of {{ $c.existingSecret }} that holds the token
{{- end }}
{{- if and $c.readTokenKey (not $c.existingSecret) }}
- sidecar.control.readTokenKey: names a key of sidecar.control.existingSecret, and that is not set. Name the Secret with both tokens
{{- else if and $c.readTokenKey (eq $c.readTokenKey $c.tokenKey) }}
- sidecar.control.readTokenKey: is the key of the token that allows everything ({{ $c.tokenKey }}), and the sidecar refuses two equal tokens. Name another key
{{- end }}
{{- end -}}

{{- /* Names of the volumes, with a space behind each, that mounts have above a file. */ -}}
{{- define "amqp-sidecar-lib.mounted" -}}
{{- range .mounts -}}
{{- if and (kindIs "map" .) (hasPrefix (printf "%s/" (trimSuffix "/" (.mountPath | default "/none"))) $.file) -}}
{{- printf "%s " .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.pod" -}}
{{- $v := .v -}}
{{- if not (has $v.sidecar.readiness (list "none" "broker" "consuming")) }}
- sidecar.readiness: {{ toString $v.sidecar.readiness | quote }} is none of none, broker, consuming
{{- end }}
{{- range $key := list "native" "preStop" }}
{{- if not (kindIs "bool" (get $v.sidecar $key)) }}
- sidecar.{{ $key }}: {{ get $v.sidecar $key | toJson }} is neither true nor false
{{- end }}
{{- end }}
{{- if and $v.sidecar.native (semverCompare "<1.29.0-0" .root.Capabilities.KubeVersion.Version) }}
- sidecar.native: Kubernetes {{ .root.Capabilities.KubeVersion.Version }} has no native sidecars, they came with 1.29: it would run the sidecar as an init container that never ends, and the app would never start. Set sidecar.native=false; the README says what is lost
{{- end }}
{{- $grace := include "amqp-sidecar-lib.milliseconds" (get .env "SIDECAR_SHUTDOWN_GRACE" | default "25s") -}}
{{- $stop := include "amqp-sidecar-lib.milliseconds" $v.app.stopTimeout -}}
{{- if not $stop }}
- app.stopTimeout: {{ toString $v.app.stopTimeout | quote }} is no duration. Write a number with a unit, e.g. 10s
{{- else if $grace -}}
{{- $need := div (add (int64 $grace) (int64 $stop) 999) 1000 -}}
{{- if gt (int64 $need) (int64 $v.terminationGracePeriodSeconds) }}
- terminationGracePeriodSeconds: {{ int64 $v.terminationGracePeriodSeconds }} is less than {{ .at.SIDECAR_SHUTDOWN_GRACE }} ({{ get .env "SIDECAR_SHUTDOWN_GRACE" | default "25s" }}) and app.stopTimeout ({{ $v.app.stopTimeout }}) together: the kubelet would kill the app, or the sidecar with messages in hand, before the drain has ended. Raise it to {{ $need }} at least, or lower one of the two
{{- end }}
{{- end }}
{{- $security := $v.sidecar.securityContext | default dict }}
{{- if and $security.runAsNonRoot (eq (include "amqp-sidecar-lib.text" $security.runAsUser) "0") }}
- sidecar.securityContext.runAsUser: is 0, and runAsNonRoot forbids the kubelet to start that. Leave it 65532; nothing in the sidecar needs root
{{- end }}
{{- range $variable, $x := .typed }}
{{- if and (not (hasKey $x "valueFrom")) (regexMatch "\\$\\(" (toString $x.value)) }}
- {{ $x.from }}: {{ toString $x.value | quote }} has $( in it, which Kubernetes would replace by a variable. Write the text itself, or take extraEnv {{ $variable }}, where that may be meant
{{- end }}
{{- end }}
{{- $url := get .env "SIDECAR_APP_URL" | default "" }}
{{- if and (hasPrefix "unix:///" $url) (not (include "amqp-sidecar-lib.wrong.app" $url)) (not (include "amqp-sidecar-lib.mounted" (dict "mounts" $v.extraVolumeMounts "file" (regexFind "/[^:]*" (trimPrefix "unix://" $url)))) ) }}
- {{ .at.SIDECAR_APP_URL }}: nothing is mounted into the sidecar where the socket is. Give the app and the sidecar one volume: extraVolumes (an emptyDir), mounted at the socket's directory by extraVolumeMounts and by the app (app.volumeMounts in the chart amqp-sidecar)
{{- end }}
{{- range $kind, $list := dict "extraVolumes" $v.extraVolumes -}}
{{- range $list -}}
{{- if hasPrefix "amqp-sidecar-" (.name | default "") }}
- {{ $kind }}: the name {{ quote .name }} begins like those of the sidecar's own volumes. Choose another
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
