{{- /* Sections that are none, lists that are none: everything else would stumble over them without saying why. A chart
that gives its whole values, as amqp-sidecar does, has keys of its own among them; in a subtree everything is the sidecar's. */ -}}
{{- define "amqp-sidecar-lib.check.shape" -}}
{{- $given := .values | default dict -}}
{{- $defaults := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- if not (kindIs "map" $given) }}
- values: {{ toJson $given }} is not a map with the sidecar's values
{{- else -}}
{{- range $key, $default := $defaults -}}
{{- $value := get $given $key -}}
{{- if not (or (not (hasKey $given $key)) (kindIs "invalid" $value)) -}}
{{- if and (kindIs "map" $default) (not (kindIs "map" $value)) }}
- {{ $key }}: {{ toJson $value }} is not a section. It has the keys {{ keys $default | sortAlpha | join ", " | default "of the chart amqp-sidecar" }}
{{- else if and (kindIs "slice" $default) (not (kindIs "slice" $value)) }}
- {{ $key }}: {{ toJson $value }} is not a list
{{- else if kindIs "slice" $default -}}
{{- range $value -}}
{{- if not (kindIs "map" .) }}
- {{ $key }}: {{ toJson . }} is not an item of this list: an item is a map{{ if eq $key "extraEnv" }}: {name: SIDECAR_…, value: "…"}{{ end }}
{{- end }}
{{- end -}}
{{- else if and (kindIs "float64" $default) (not (regexMatch "^[0-9]+$" (include "amqp-sidecar-lib.text" $value))) }}
- {{ $key }}: {{ toJson $value }} is not a whole number of seconds
{{- end }}
{{- end -}}
{{- end -}}
{{- if ne (toJson $given) (toJson .root.Values) -}}
{{- range $key := keys $given | sortAlpha -}}
{{- if not (or (hasKey $defaults $key) (eq $key "global") (hasPrefix "x-" $key)) }}
- {{ $key }}: unknown key. Known are {{ keys $defaults | sortAlpha | join ", " }}
{{- end }}
{{- end -}}
{{- if kindIs "map" $given.app -}}
{{- range $key := keys $given.app | sortAlpha -}}
{{- if not (or (hasKey $defaults.app $key) (eq $key "port")) }}
- app.{{ $key }}: unknown key, because the container of the app is yours. Known are port, {{ keys $defaults.app | sortAlpha | join ", " }}
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
- {{ $path }}: {{ . }} is not a port. Use 1 to 65535
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Keys that nothing reads: a setting that silently does nothing. */ -}}
{{- define "amqp-sidecar-lib.check.keys" -}}
{{- $known := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- $known = mergeOverwrite $known (dict "sidecar" (dict "adminPort" nil) "publish" (dict "address" nil) "tracing" (dict "enabled" nil) "app" (dict "port" nil)) -}}
{{- range $path := include "amqp-sidecar-lib.typed" . | fromYaml -}}
{{- $parts := splitList "." $path -}}
{{- $section := get $known (first $parts) -}}
{{- if eq (len $parts) 3 -}}{{- $section = get $section (index $parts 1) -}}{{- end -}}
{{- $_ := set $section (last $parts) nil -}}
{{- end -}}
{{- range $name := list "image" "broker" "topology" "dispatch" "flow" "publish" "outbox" "sidecar" "tracing" -}}
{{- $section := get $.v $name -}}
{{- range $key := keys $section | sortAlpha }}
{{- if not (hasKey (get $known $name) $key) }}
- {{ $name }}.{{ $key }}: unknown key. Known are {{ get $known $name | keys | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- end -}}
{{- range $path := list "broker.tls" "outbox.tls" "outbox.migrate" "sidecar.control" "app.tokenSecret" "tracing.headersSecret" -}}
{{- $parts := splitList "." $path -}}
{{- $inner := get (get $known (first $parts)) (last $parts) -}}
{{- range $key := keys (get (get $.v (first $parts)) (last $parts) | default dict) | sortAlpha }}
{{- if not (hasKey $inner $key) }}
- {{ $path }}.{{ $key }}: unknown key. Known are {{ keys $inner | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* A variable that is set twice. The sidecar checks the names of variables, see the init container sidecar-config. */ -}}
{{- define "amqp-sidecar-lib.check.extraEnv" -}}
{{- $seen := dict -}}
{{- range $entry := .v.extraEnv -}}
{{- if or (not (kindIs "map" $entry)) (not ($entry | default dict).name) }}
- extraEnv: {{ toJson $entry }} has no name. Each item is {name: SIDECAR_…, value: "…"}
{{- else -}}
{{- $name := $entry.name -}}
{{- $base := trimSuffix "_FILE" $name -}}
{{- if hasKey $seen $base }}
- extraEnv {{ $name }}: {{ if eq (get $seen $base) $name }}is there twice{{ else }}says the same as {{ get $seen $base }}, and the sidecar refuses both{{ end }}. Keep one
{{- end }}
{{- $_ := set $seen $base $name -}}
{{- range $other := list $base (printf "%s_FILE" $base) -}}
{{- if hasKey $.typed $other }}
- extraEnv {{ $name }}: {{ (get $.typed $other).from }} sets {{ $other }} already, and only one of them can count. Keep the value, or {{ if (get $.typed $other).from | contains " and " }}leave them{{ else }}leave it{{ end }} empty and keep extraEnv
{{- end }}
{{- end }}
{{- if and (hasKey $entry "value") (hasKey $entry "valueFrom") }}
- extraEnv {{ $name }}: has value and valueFrom, and Kubernetes takes only one
{{- end }}
{{- if and (kindIs "map" (get $entry "value")) }}
- extraEnv {{ $name }}: its value is not a text
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
