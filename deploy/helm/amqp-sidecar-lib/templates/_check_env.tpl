{{- /* Sections that are none, lists that are none: everything else would stumble over them without saying why. A chart
that gives its whole values, as amqp-sidecar does, has keys of its own among them; in a subtree everything is the sidecar's. */ -}}
{{- define "amqp-sidecar-lib.check.shape" -}}
{{- $given := .values | default dict -}}
{{- $defaults := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- if not (kindIs "map" $given) }}
- values: {{ toJson $given }} is no map with the sidecar's values
{{- else -}}
{{- range $key, $default := $defaults -}}
{{- $value := get $given $key -}}
{{- if not (or (not (hasKey $given $key)) (kindIs "invalid" $value)) -}}
{{- if and (kindIs "map" $default) (not (kindIs "map" $value)) }}
- {{ $key }}: {{ toJson $value }} is no section. It has the keys {{ keys $default | sortAlpha | join ", " | default "of the chart amqp-sidecar" }}
{{- else if and (kindIs "slice" $default) (not (kindIs "slice" $value)) }}
- {{ $key }}: {{ toJson $value }} is no list
{{- else if kindIs "slice" $default -}}
{{- range $value -}}
{{- if not (kindIs "map" .) }}
- {{ $key }}: {{ toJson . }} is no item of such a list, which has keys of its own{{ if eq $key "extraEnv" }}: {name: SIDECAR_…, value: "…"}{{ end }}
{{- end }}
{{- end -}}
{{- else if and (kindIs "float64" $default) (not (regexMatch "^[0-9]+$" (include "amqp-sidecar-lib.text" $value))) }}
- {{ $key }}: {{ toJson $value }} is no whole number of seconds
{{- end }}
{{- end -}}
{{- end -}}
{{- if ne (toJson $given) (toJson .root.Values) -}}
{{- range $key := keys $given | sortAlpha -}}
{{- if not (or (hasKey $defaults $key) (eq $key "global") (hasPrefix "x-" $key)) }}
- {{ $key }}: nothing reads it. Known are {{ keys $defaults | sortAlpha | join ", " }}
{{- end }}
{{- end -}}
{{- if kindIs "map" $given.app -}}
{{- range $key := keys $given.app | sortAlpha -}}
{{- if not (or (hasKey $defaults.app $key) (eq $key "port")) }}
- app.{{ $key }}: nothing reads it, because the app's container is yours. Known are port, {{ keys $defaults.app | sortAlpha | join ", " }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path := list "app.port" "sidecar.adminPort" -}}
{{- $parts := splitList "." $path -}}
{{- $section := get $given (first $parts) -}}
{{- if kindIs "map" $section -}}
{{- with include "amqp-sidecar-lib.text" (get $section (last $parts)) -}}
{{- if not (include "amqp-sidecar-lib.isPort" .) }}
- {{ $path }}: {{ . }} is no port. Take 1 to 65535
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Keys that nothing reads: a setting that silently does nothing. */ -}}
{{- define "amqp-sidecar-lib.check.keys" -}}
{{- $known := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- $known = mergeOverwrite $known (dict "sidecar" (dict "adminPort" nil) "publish" (dict "address" nil) "tracing" (dict "enabled" nil) "topology" (dict "retryMode" nil) "app" (dict "port" nil)) -}}
{{- range $path := include "amqp-sidecar-lib.typed" . | fromYaml -}}
{{- $parts := splitList "." $path -}}
{{- $section := get $known (first $parts) -}}
{{- if eq (len $parts) 3 -}}{{- $section = get $section (index $parts 1) -}}{{- end -}}
{{- $_ := set $section (last $parts) nil -}}
{{- end -}}
{{- range $name := list "image" "service" "broker" "topology" "dispatch" "flow" "publish" "outbox" "sidecar" "tracing" -}}
{{- $section := get $.v $name -}}
{{- range $key := keys $section | sortAlpha }}
{{- if not (hasKey (get $known $name) $key) }}
- {{ $name }}.{{ $key }}: nothing reads it. Known are {{ get $known $name | keys | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- end -}}
{{- range $path := list "broker.tls" "outbox.tls" "outbox.migrate" "sidecar.control" "app.tokenSecret" "tracing.headersSecret" -}}
{{- $parts := splitList "." $path -}}
{{- $inner := get (get $known (first $parts)) (last $parts) -}}
{{- range $key := keys (get (get $.v (first $parts)) (last $parts) | default dict) | sortAlpha }}
{{- if not (hasKey $inner $key) }}
- {{ $path }}.{{ $key }}: nothing reads it. Known are {{ keys $inner | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.extraEnv" -}}
{{- $known := include "amqp-sidecar-lib.variables" . | fromYaml -}}
{{- $twins := dict -}}
{{- range $name, $rule := $known -}}{{- with $rule.twin -}}{{- $_ := set $twins . $name -}}{{- end -}}{{- end -}}
{{- $seen := dict -}}
{{- range $entry := .v.extraEnv -}}
{{- if or (not (kindIs "map" $entry)) (not ($entry | default dict).name) }}
- extraEnv: {{ toJson $entry }} has no name. Each item is {name: SIDECAR_…, value: "…"}
{{- else -}}
{{- $name := $entry.name -}}
{{- $base := get $twins $name | default $name -}}
{{- $twin := (get $known $base | default dict).twin | default "" -}}
{{- if hasKey $seen $base }}
- extraEnv {{ $name }}: {{ if eq (get $seen $base) $name }}is there twice{{ else }}says the same as {{ get $seen $base }}, and the sidecar refuses both{{ end }}. Keep one
{{- end }}
{{- $_ := set $seen $base $name -}}
{{- range $other := list $base $twin -}}
{{- if and $other (hasKey $.typed $other) }}
- extraEnv {{ $name }}: {{ (get $.typed $other).from }} sets {{ $other }} already, and only one of them can count. Keep the value, or {{ if (get $.typed $other).from | contains " and " }}leave them{{ else }}leave it{{ end }} empty and keep extraEnv
{{- end }}
{{- end }}
{{- if and (hasPrefix "SIDECAR_" $name) (not (hasKey $known $name)) (not (hasKey $twins $name)) (not (regexMatch "^SIDECAR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_.*)$" $name)) }}
- extraEnv {{ $name }}: the sidecar knows no such variable and ends with exit 64. {{ include "amqp-sidecar-lib.nearest" (dict "name" $name "known" $known) }}
{{- end }}
{{- if and (hasKey $entry "value") (hasKey $entry "valueFrom") }}
- extraEnv {{ $name }}: has value and valueFrom, and Kubernetes takes only one
{{- end }}
{{- if and (kindIs "map" (get $entry "value")) }}
- extraEnv {{ $name }}: its value is no text
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The names that share most words with one that is not known; words count as the same by their first four letters. */ -}}
{{- define "amqp-sidecar-lib.nearest" -}}
{{- $words := list -}}
{{- range splitList "_" (trimPrefix "SIDECAR_" .name | upper) -}}{{- $words = append $words (trunc 4 .) -}}{{- end -}}
{{- $best := list -}}
{{- $most := 0 -}}
{{- range $known := keys .known | sortAlpha -}}
{{- $own := splitList "_" (trimPrefix "SIDECAR_" $known) -}}
{{- $score := mul -1 (len $own) -}}
{{- range $own -}}{{- if has (trunc 4 .) $words -}}{{- $score = add $score 10 -}}{{- end -}}{{- end -}}
{{- if and (hasPrefix "SIDECAR_" $known) (gt (int $score) (int $most)) -}}
{{- $most = $score -}}
{{- $best = list $known -}}
{{- else if and (hasPrefix "SIDECAR_" $known) (gt (int $score) 0) (eq (int $score) (int $most)) -}}
{{- $best = append $best $known -}}
{{- end -}}
{{- end -}}
{{- if $best -}}
Near it {{ if gt (len $best) 1 }}are{{ else }}is{{ end }} {{ join ", " $best }}; all are in docs/configuration.md
{{- else -}}
All it knows are in docs/configuration.md
{{- end -}}
{{- end -}}

{{- /* Each variable alone: the words, numbers and times that the sidecar takes. */ -}}
{{- define "amqp-sidecar-lib.check.rules" -}}
{{- range $name, $rule := include "amqp-sidecar-lib.variables" . | fromYaml -}}
{{- $text := get $.env $name | default "" | toString -}}
{{- $at := get $.at $name -}}
{{- if $text -}}
{{- if and $rule.words (not (has $text $rule.words)) }}
- {{ $at }}: {{ quote $text }} is none of {{ join ", " $rule.words }}{{ if and (has "off" $rule.words) (has $text (list "false" "true")) }}. YAML takes off without quotes for false: write "off"{{ end }}
{{- else if eq ($rule.kind | default "") "duration" }}
{{- include "amqp-sidecar-lib.check.duration" (dict "at" $at "text" $text "rule" $rule) }}
{{- else if and (eq ($rule.kind | default "") "durations") (ne $text "none") }}
{{- range splitList "," $text }}
{{- include "amqp-sidecar-lib.check.duration" (dict "at" $at "text" (trim .) "rule" $rule) }}
{{- end }}
{{- else if and (eq ($rule.kind | default "") "number") $rule.low }}
{{- if not (regexMatch "^[0-9]{1,9}$" $text) }}
- {{ $at }}: {{ quote $text }} is no whole number from {{ $rule.low }} to {{ $rule.high }}
{{- else if or (lt (int64 $text) (int64 $rule.low)) (gt (int64 $text) (int64 $rule.high)) }}
- {{ $at }}: {{ $text }} is out of range. Take {{ $rule.low }} to {{ $rule.high }}
{{- end }}
{{- else if eq ($rule.kind | default "") "size" }}
{{- $bytes := include "amqp-sidecar-lib.bytes" $text }}
{{- if not (regexMatch "^[0-9]+(KiB|MiB|GiB)?$" $text) }}
- {{ $at }}: {{ quote $text }} is no size. Write whole bytes, or a whole number with KiB, MiB or GiB, e.g. 4MiB
{{- else if or (lt (int64 $bytes) 1) (gt (int64 $bytes) (include "amqp-sidecar-lib.bytes" $rule.high | int64)) }}
- {{ $at }}: {{ $text }} is out of range. Take {{ $rule.low }} to {{ $rule.high }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.duration" -}}
{{- $ms := include "amqp-sidecar-lib.milliseconds" .text -}}
{{- if regexMatch "^[0-9.]+$" .text }}
- {{ .at }}: {{ quote .text }} has no unit. Write {{ .text }}s for seconds, {{ .text }}ms, {{ .text }}m or {{ .text }}h
{{- else if not $ms }}
- {{ .at }}: {{ quote .text }} is no duration. Write a number with a unit, e.g. 500ms, 30s, 5m or 1h30m
{{- else if or (lt (int64 $ms) (include "amqp-sidecar-lib.milliseconds" .rule.low | int64)) (gt (int64 $ms) (include "amqp-sidecar-lib.milliseconds" .rule.high | int64)) }}
- {{ .at }}: {{ .text }} is out of range. Take {{ .rule.low }} to {{ .rule.high }}
{{- else if and .rule.unit (or (regexMatch "ns|us|µs" .text) (ne (mod (int64 $ms) (include "amqp-sidecar-lib.milliseconds" .rule.unit | int64)) 0)) }}
- {{ .at }}: {{ .text }} is no whole number of {{ ternary "seconds" "milliseconds" (eq .rule.unit "1s") }}, which is all that the broker counts
{{- end }}
{{- end -}}
