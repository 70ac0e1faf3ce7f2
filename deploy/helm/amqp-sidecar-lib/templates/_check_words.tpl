{{- /* A preset that does not exist, and URLs. The schema does not check these: it names no word that may be meant, and repeats a
value, which may hold a password. URLs that pass here can still be refused by the sidecar. */ -}}
{{- define "amqp-sidecar-lib.check.words" -}}
{{- range $variable, $x := .typed -}}
{{- $text := include "amqp-sidecar-lib.text" $x.value -}}
{{- if regexMatch "^SIDECAR_(SUB_[A-Z0-9_]+_)?TOPOLOGY$" $variable -}}
{{- include "amqp-sidecar-lib.check.preset" (dict "at" $x.from "preset" $text) -}}
{{- else if and (hasSuffix "_APP_URL" $variable) (regexMatch "app\\.url$" $x.from) (not (include "amqp-sidecar-lib.isURL" (list "https?" "" $text))) (not (regexMatch "^unix:///[^:?%]+(:/.*)?$" $text)) }}
- {{ $x.from }}: is not http://HOST:PORT/PATH, https://HOST:PORT/PATH or unix:///path/to.sock:/PATH, with a port from 1 to 65535 or none, and without user and fragment
{{- else if and (eq $variable "OTEL_EXPORTER_OTLP_ENDPOINT") (not (include "amqp-sidecar-lib.isURL" (list "https?" "" $text))) }}
- {{ $x.from }}: is not http://HOST:PORT or https://HOST:PORT, with a port from 1 to 65535 or none, and without user and fragment
{{- end -}}
{{- end -}}
{{- $user := "([A-Za-z0-9._~!$&'()*+;=:@-]|%[0-9A-Fa-f]{2})*@" -}}
{{- if .v.broker.url -}}
{{- range $i, $url := splitList "," .v.broker.url -}}
{{- if not (include "amqp-sidecar-lib.isURL" (list "amqps?" (printf "(%s)?" $user) (trim $url))) }}
- broker.url: {{ with $i }}URL {{ add1 . }} {{ end }}is not amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://…, with a port from 1 to 65535 or none, and without query and fragment; in user, password and vhost write %2f for /, %40 for @, %20 for a space and so on, or use broker.existingSecret with usernameKey and passwordKey, which take any
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* (list schemes user text): "yes" for a URL. A subscription's name may be in the host. */ -}}
{{- define "amqp-sidecar-lib.isURL" -}}
{{- $port := "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})" -}}
{{- $path := ternary "(/([^/?#@%\\s]|%[0-9A-Fa-f]{2})*)?" "([/?]([^#%\\s]|%[0-9A-Fa-f]{2})*)?" (hasPrefix "amqp" (index . 0)) -}}
{{- if regexMatch (printf "^%s://%s(\\[[0-9A-Fa-f:.%%]+\\]|[A-Za-z0-9._{}-]+)(:0*%s)?%s$" (index . 0) (index . 1) $port $path) (index . 2) -}}yes{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.preset" -}}
{{- $presets := include "amqp-sidecar-lib.presets" . | fromYaml | keys | sortAlpha -}}
{{- if not (has .preset $presets) -}}
{{- $least := 4 -}}
{{- $meant := "" -}}
{{- range $name := $presets -}}
{{- $distance := include "amqp-sidecar-lib.distance" (list (lower $.preset) $name) | int -}}
{{- if and (lt $distance $least) (le (mul 2 $distance) (len $name)) -}}
{{- $least = $distance -}}
{{- $meant = $name -}}
{{- end -}}
{{- end }}
- {{ .at }}: {{ quote .preset }} is not a preset. {{ if $meant }}Did you mean {{ $meant }}?{{ else }}Known are {{ join ", " $presets }}{{ end }}
{{- end -}}
{{- end -}}
