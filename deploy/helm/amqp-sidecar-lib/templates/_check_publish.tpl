{{- /* "yes" where a value of the section publish or outbox is set that means nothing without what switches it on. */ -}}
{{- define "amqp-sidecar-lib.check.unused" -}}
{{- $set := list -}}
{{- range .keys -}}
{{- if include "amqp-sidecar-lib.text" (ternary "" (get $.values .) (empty (get $.values .))) -}}{{- $set = append $set (printf "%s.%s" $.section .) -}}{{- end -}}
{{- end -}}
{{- join ", " $set -}}
{{- end -}}

{{- /* A text of alias=exchange or column=name: what is wrong with its form. */ -}}
{{- define "amqp-sidecar-lib.wrong.pairs" -}}
{{- $seen := list -}}
{{- range splitList "," . -}}
{{- $name := splitList "=" . | first | trim }}
{{- if not (regexMatch "^[^=]+=." (trim .)) }}
{{ quote (trim .) }} is not name=value, and a comma begins the next pair
{{- else if has $name $seen }}
{{ quote $name }} is there twice
{{- end }}
{{- $seen = append $seen $name -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.publish" -}}
{{- $p := .v.publish -}}
{{- if and (eq (get .env "SIDECAR_CONSUME" | default "") "off") (not (hasKey .env "SIDECAR_PUBLISH_ADDR")) (not (include "amqp-sidecar-lib.hasOutbox" .env)) (not .v.extraEnvFrom) }}
- {{ .at.SIDECAR_CONSUME }}: off leaves nothing to do, and the sidecar refuses to start so. Set publish.enabled=true or outbox.existingSecret, or leave it empty
{{- end }}
{{- if not (kindIs "bool" $p.enabled) }}
- publish.enabled: {{ toJson $p.enabled }} is neither true nor false
{{- end }}
{{- $on := or (hasKey .env "SIDECAR_PUBLISH_ADDR") .v.extraEnvFrom -}}
{{- with include "amqp-sidecar-lib.check.unused" (dict "section" "publish" "values" $p "keys" (list "address" "existingSecret" "exchanges" "routingKeys" "maxBody" "maxInflight" "timeout")) }}
{{- if or (not $on) (and $p.address (not $p.enabled)) }}
- {{ . }}: publish.enabled is false, so the sidecar takes no messages from the app. Set publish.enabled=true, or leave them empty
{{- end }}
{{- end }}
{{- with get .env "SIDECAR_PUBLISH_ADDR" }}
{{- $at := $.at.SIDECAR_PUBLISH_ADDR -}}
{{- if include "amqp-sidecar-lib.wrong.listen" . }}
- {{ $at }}: {{ quote . }} {{ include "amqp-sidecar-lib.wrong.listen" . }}. Write 127.0.0.1:9092, or :9092 for all of the pod's addresses (with a token)
{{- else if hasSuffix ":0" . }}
- {{ $at }}: port 0 is chosen at the start, and the app has to know it before. Write 127.0.0.1:9092
{{- else }}
{{- $port := include "amqp-sidecar-lib.port" . -}}
{{- range $variable, $address := omit (include "amqp-sidecar-lib.listeners" $ | fromJson) "SIDECAR_PUBLISH_ADDR" }}
{{- if eq $port (include "amqp-sidecar-lib.port" $address) }}
- {{ $at }}: has the port of {{ get $.at $variable }} ({{ $port }}), and two listeners cannot share one. Set publish.address=127.0.0.1:9092, or move the other one
{{- end }}
{{- end }}
{{- $token := or $p.existingSecret (hasKey $.given "SIDECAR_PUBLISH_TOKEN") (hasKey $.given "SIDECAR_PUBLISH_TOKEN_FILE") $.v.extraEnvFrom -}}
{{- if and (not (regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):[0-9]+$" .)) (not $token) }}
- {{ $at }}: {{ quote . }} can be reached from other pods, which could publish in the name of this service: the sidecar refuses to start so without a token. Set publish.existingSecret to a Secret with one of 16 characters or more (key {{ $p.tokenKey | default "token" }}), or write 127.0.0.1:{{ $port }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $p.existingSecret (not $p.tokenKey) }}
- publish.tokenKey: is empty. Name the key of {{ $p.existingSecret }} that holds the token
{{- end }}
{{- with get .env "SIDECAR_PUBLISH_EXCHANGES" }}
{{- $at := $.at.SIDECAR_PUBLISH_EXCHANGES -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.pairs" . | trim -}}
{{- if $wrong }}
- {{ $at }}: {{ splitList "\n" $wrong | join "; " }}. Write {orders: shop.orders}, the name in the path first
{{- else }}
{{- range splitList "," . }}
{{- $alias := splitList "=" . | first | trim -}}
{{- if not (regexMatch "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" $alias) }}
- {{ $at }}: {{ quote $alias }} cannot stand in a path as it is. An alias has letters, digits, -, _ and ., and 63 of them at most
{{- else if regexMatch "[\\x00-\\x1f\\x7f]|.{256}" (trimPrefix (printf "%s=" $alias) (trim .)) }}
- {{ $at }}: the exchange of {{ $alias }} has control characters or more than 255 bytes, and the broker knows no such name
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with get .env "SIDECAR_PUBLISH_ROUTING_KEYS" }}
{{- $seen := list -}}
{{- range splitList "," . }}
{{- if not (trim .) }}
- {{ $.at.SIDECAR_PUBLISH_ROUTING_KEYS }}: has an empty item. * stands for any routing key, the empty one too
{{- else if has (trim .) $seen }}
- {{ $.at.SIDECAR_PUBLISH_ROUTING_KEYS }}: {{ trim . | quote }} is there twice, and the sidecar refuses that. Leave one out
{{- else if regexMatch "[\\x00-\\x1f\\x7f]|.{256}" . }}
- {{ $.at.SIDECAR_PUBLISH_ROUTING_KEYS }}: one has control characters or more than 255 bytes, and no message can have that key
{{- end }}
{{- $seen = append $seen (trim .) -}}
{{- end }}
{{- end }}
{{- end -}}
