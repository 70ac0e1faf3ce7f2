{{- /* "yes" where a value of the section publish or outbox is set that means nothing without what switches it on. */ -}}
{{- define "amqp-sidecar-lib.check.unused" -}}
{{- $set := list -}}
{{- range .keys -}}
{{- if include "amqp-sidecar-lib.text" (ternary "" (get $.values .) (empty (get $.values .))) -}}{{- $set = append $set (printf "%s.%s" $.section .) -}}{{- end -}}
{{- end -}}
{{- join ", " $set -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.publish" -}}
{{- $p := .v.publish -}}
{{- if not (kindIs "bool" $p.enabled) }}
- publish.enabled: {{ toJson $p.enabled }} is neither true nor false
{{- end }}
{{- $on := or (hasKey .env "SIDECAR_PUBLISH_ADDR") .v.extraEnvFrom -}}
{{- with include "amqp-sidecar-lib.check.unused" (dict "section" "publish" "values" $p "keys" (concat (ternary (list "exchanges") list (empty .v.outbox.existingSecret)) (list "address" "existingSecret" "routingKeys" "timeout"))) }}
{{- if or (not $on) (and $p.address (not $p.enabled)) }}
- {{ . }}: publish.enabled is false, so the sidecar takes no messages from the app. Set publish.enabled=true, or leave them empty
{{- end }}
{{- end }}
{{- if hasSuffix ":0" (get .env "SIDECAR_PUBLISH_ADDR" | default "") }}
- {{ .at.SIDECAR_PUBLISH_ADDR }}: port 0 is chosen at the start, and the app has to know it before. Write 127.0.0.1:9092
{{- end }}
{{- if and $p.existingSecret (not $p.tokenKey) }}
- publish.tokenKey: is empty. Name the key of {{ $p.existingSecret }} that holds the token
{{- end }}
{{- end -}}
