{{- /* Headers of messages that are sent to the app. */ -}}
{{- define "amqp-sidecar-lib.check.headers" -}}
{{- $reserved := include "amqp-sidecar-lib.reservedHeaders" . | fromYaml -}}
{{- $never := $reserved.never -}}
{{- $prefixes := $reserved.prefixes -}}
{{- $bare := concat $never $reserved.bare -}}
{{- range $variable, $refused := dict "SIDECAR_FORWARD_HEADERS" $never "SIDECAR_PASSTHROUGH_HEADERS" $bare -}}
{{- $at := get $.at $variable -}}
{{- $seen := list -}}
{{- with get $.env $variable -}}
{{- range $pattern := splitList "," . -}}
{{- $pattern = trim $pattern -}}
{{- $name := lower $pattern | replace "_" "-" | replace "." "-" -}}
{{- $literal := regexFind "^[^*?]*" $name -}}
{{- $found := "" -}}
{{- if eq $variable "SIDECAR_FORWARD_HEADERS" -}}
{{- if has $name $refused -}}{{- $found = $name -}}{{- end -}}
{{- else -}}
{{- $match := printf "^%s$" (regexQuoteMeta $name | replace "\\*" ".*" | replace "\\?" ".") -}}
{{- range $refused -}}{{- if and (not $found) (regexMatch $match .) -}}{{- $found = . -}}{{- end -}}{{- end -}}
{{- range $prefixes -}}{{- if and (not $found) (hasPrefix . $literal) -}}{{- $found = printf "%s…" . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[A-Za-z0-9!#$%&'*+.?^_|~:-]+$" $pattern) }}
- {{ $at }}: {{ quote $pattern }} is no header name or pattern, e.g. [x-tenant, "app-*"]
{{- else if has (lower $pattern) $seen }}
- {{ $at }}: {{ quote $pattern }} is there twice; upper and lower case are the same
{{- else if and $found (eq $variable "SIDECAR_FORWARD_HEADERS") }}
- {{ $at }}: no header of a message ever sets {{ quote $pattern }}. Leave it out
{{- else if $found }}
- {{ $at }}: {{ quote $pattern }} would let a message set the header {{ $found }}, which has a meaning in HTTP or is the sidecar's own. Name the headers that your app reads; dispatch.forwardHeaders sends others as Amqp-Header-…
{{- end }}
{{- $seen = append $seen (lower $pattern) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
