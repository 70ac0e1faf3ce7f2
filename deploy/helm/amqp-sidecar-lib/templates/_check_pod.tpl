{{- define "amqp-sidecar-lib.check.app" -}}
{{- $a := .v.app -}}
{{- if and $a.url (or $a.port $a.path) }}
- app.url: port and path are set as well, and the URL has both. Keep app.url, or app.port and app.path
{{- end }}
{{- range $name, $one := .v.subscriptions -}}
{{- $of := $one.app | default dict -}}
{{- $at := printf "subscriptions.%s.app" $name -}}
{{- if and $of.url (or $of.port $of.path) }}
- {{ $at }}.url: port and path are set as well, and the URL has both. Keep {{ $at }}.url, or {{ $at }}.port and {{ $at }}.path
{{- else if and $of.path (not $of.port) $a.url }}
- {{ $at }}.path: app.url is a whole URL, and has no port that the path could be added to. Set {{ $at }}.url
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.control" -}}
{{- $c := .v.sidecar.control -}}
{{- $admin := get .env "SIDECAR_ADMIN_ADDR" | default ":9090" -}}
{{- if regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):[0-9]+$" $admin }}
- {{ .at.SIDECAR_ADMIN_ADDR }}: {{ quote $admin }} is loopback, and probes, the app's preStop hook and Prometheus come to the pod's address. Write :{{ include "amqp-sidecar-lib.port" $admin }}
{{- else if hasSuffix ":0" $admin }}
- {{ .at.SIDECAR_ADMIN_ADDR }}: port 0 is chosen at the start, and probes have to know it before. Write :9090
{{- end }}
{{- if and (hasSuffix ":0" (get .env "SIDECAR_CONTROL_ADDR" | default "")) .v.sidecar.preStop }}
- {{ .at.SIDECAR_CONTROL_ADDR }}: port 0 is chosen at the start, and the preStop hook (sidecar drain) has to know it. Write 127.0.0.1:9091
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

{{- /* Sidecars of one pod share its network and its list of containers. */ -}}
{{- define "amqp-sidecar-lib.check.beside" -}}
{{- range .beside -}}
{{- $other := include "amqp-sidecar-lib.settings" (dict "root" $.root "values" .) | fromJson -}}
{{- $name := $other.values.sidecar.name -}}
{{- if eq $name $.v.sidecar.name }}
- sidecar.name: two sidecars of the pod are named {{ quote $name }}. Choose another name for one of them
{{- end }}
{{- range $variable, $address := include "amqp-sidecar-lib.listeners" $other | fromJson -}}
{{- $port := include "amqp-sidecar-lib.port" $address -}}
{{- range $ours, $own := include "amqp-sidecar-lib.listeners" $ | fromJson -}}
{{- if and $port (eq $port (include "amqp-sidecar-lib.port" $own)) }}
- {{ get $.at $ours | default "sidecar.control.address" }}: port {{ $port }} is that of the sidecar {{ $name }} ({{ $variable }}), and containers of a pod share its network. Choose another one
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
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
- sidecar.readiness: {{ toString $v.sidecar.readiness | quote }} is not none, broker or consuming
{{- end }}
{{- if not (regexMatch "^[a-z](-?[a-z0-9]){0,8}$" (include "amqp-sidecar-lib.text" $v.sidecar.name)) | or (gt (len (include "amqp-sidecar-lib.text" $v.sidecar.name)) 9) }}
- sidecar.name: {{ toString $v.sidecar.name | quote }} is not a name of at most 9 lower-case letters, digits and single hyphens, beginning with a letter. The container is called so, and its port with -admin behind it, of at most 15 characters
{{- end }}
{{- range $key := list "native" "preStop" "configCheck" }}
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
- app.stopTimeout: {{ toString $v.app.stopTimeout | quote }} is not a duration. Write a number with a unit, e.g. 10s
{{- else if $grace -}}
{{- $need := div (add (int64 $grace) (int64 $stop) 999) 1000 -}}
{{- if gt (int64 $need) (int64 $v.terminationGracePeriodSeconds) }}
- terminationGracePeriodSeconds: {{ int64 $v.terminationGracePeriodSeconds }} is less than {{ .at.SIDECAR_SHUTDOWN_GRACE }} ({{ get .env "SIDECAR_SHUTDOWN_GRACE" | default "25s" }}) and app.stopTimeout ({{ $v.app.stopTimeout }}) together: the kubelet would kill the app, or the sidecar with messages in flight, before the drain has ended. Raise it to {{ $need }} at least, or lower one of the two
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
{{- range include "amqp-sidecar-lib.each" . | fromJsonArray }}
{{- $url := get .env "SIDECAR_APP_URL" | default "" }}
{{- if and (hasPrefix "unix:///" $url) (not (include "amqp-sidecar-lib.mounted" (dict "mounts" $v.extraVolumeMounts "file" (regexFind "/[^:]*" (trimPrefix "unix://" $url)))) ) }}
- {{ .at.SIDECAR_APP_URL }}: nothing is mounted into the sidecar where the socket is. Give the app and the sidecar one volume: extraVolumes (an emptyDir), mounted at the socket's directory by extraVolumeMounts and by the app (app.volumeMounts in the chart amqp-sidecar)
{{- end }}
{{- end }}
{{- range $kind, $list := dict "extraVolumes" $v.extraVolumes -}}
{{- range $list -}}
{{- if hasPrefix (printf "amqp-%s-" $v.sidecar.name) (.name | default "") }}
- {{ $kind }}: the name {{ quote .name }} begins like those of the sidecar's own volumes. Choose another
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
