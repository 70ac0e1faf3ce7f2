{{- /* (list given known path): maps that are none, lists that are none. Everything else would stumble over them without saying why. */ -}}
{{- define "amqp-sidecar-lib.check.kinds" -}}
{{- $given := index . 0 -}}
{{- $at := index . 2 -}}
{{- range $key, $known := index . 1 -}}
{{- $value := get $given $key -}}
{{- $path := list $at $key | compact | join "." -}}
{{- $not := get (dict "map" "a map" "slice" "a list") (kindOf $value) | default "a single value" -}}
{{- if and (kindIs "map" $known) (kindIs "map" $value) -}}
{{- include "amqp-sidecar-lib.check.kinds" (list $value $known $path) -}}
{{- else if or (not (hasKey $given $key)) (kindIs "invalid" $value) (kindIs (kindOf $known) $value) -}}
{{- else if kindIs "map" $known }}
- {{ $path }}: is a map, { {{- range $i, $k := keys $known | sortAlpha }}{{ if $i }}, {{ end }}{{ $k }}: …{{ else }}…{{ end -}} }, and not {{ $not }}
{{- else if kindIs "slice" $known }}
- {{ $path }}: is a list, [{{ if regexMatch "^(e|extraE)nv$" $key }}{name: …, value: …}{{ else }}…{{ end }}], and not {{ $not }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.shape" -}}
{{- $given := .values | default dict -}}
{{- $defaults := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- if not (kindIs "map" $given) }}
- values: {{ toJson $given }} is not a map with the sidecar's values
{{- else -}}
{{- include "amqp-sidecar-lib.check.kinds" (list $given (include "amqp-sidecar-lib.known" . | fromJson) "") -}}
{{- range $key, $default := $defaults -}}
{{- $value := get $given $key -}}
{{- if not (or (not (hasKey $given $key)) (kindIs "invalid" $value)) -}}
{{- if and (kindIs "slice" $default) (kindIs "slice" $value) -}}
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
{{- if kindIs "map" $given.subscriptions -}}
{{- include "amqp-sidecar-lib.check.subscriptions" $given.subscriptions -}}
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

{{- /* A variable that is set twice. The sidecar checks the names of variables, see the init container sidecar-config. */ -}}
{{- define "amqp-sidecar-lib.check.extraEnv" -}}
{{- $seen := dict -}}
{{- range .entries -}}
{{- $entry := .entry -}}
{{- $at := .at -}}
{{- if or (not (kindIs "map" $entry)) (not ($entry | default dict).name) }}
- extraEnv: {{ toJson $entry }} has no name. Each item is {name: SIDECAR_…, value: "…"}
{{- else -}}
{{- $name := $entry.name -}}
{{- $base := trimSuffix "_FILE" $name -}}
{{- if hasKey $seen $base }}
- {{ $at }}: {{ if eq (get $seen $base) $name }}is there twice{{ else }}says the same as {{ get $seen $base }}, and the sidecar refuses both{{ end }}. Keep one
{{- end }}
{{- $_ := set $seen $base $name -}}
{{- range $other := list $base (printf "%s_FILE" $base) -}}
{{- if hasKey $.typed $other }}
- {{ $at }}: {{ (get $.typed $other).from }} sets {{ $other }} already, and only one of them can count. Keep the value, or {{ if (get $.typed $other).from | contains " and " }}leave them{{ else }}leave it{{ end }} empty and keep {{ regexFind "^[^ ]+" $at }}
{{- end }}
{{- end }}
{{- if and (hasKey $entry "value") (hasKey $entry "valueFrom") }}
- {{ $at }}: has value and valueFrom, and Kubernetes takes only one
{{- end }}
{{- if and (kindIs "map" (get $entry "value")) }}
- {{ $at }}: its value is not a text
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
