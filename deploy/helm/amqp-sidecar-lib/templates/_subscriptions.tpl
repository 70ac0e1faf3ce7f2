{{- /* Which value of a subscription sets which variable: those of the sections app, dispatch, flow and topology, with the names that
they have for a single queue, but for what bounds the whole process. */ -}}
{{- define "amqp-sidecar-lib.typedForOne" -}}
{{- range $variable, $path := include "amqp-sidecar-lib.typed" . | fromYaml -}}
{{- if and (regexMatch "^(app|dispatch|flow|topology)[.]" $path) (not (has $path (list "flow.memory" "flow.maxConcurrency"))) }}
{{ $variable }}: {{ $path }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* All values of a subscription as a tree, as JSON. */ -}}
{{- define "amqp-sidecar-lib.knownForOne" -}}
{{- $known := dict "env" list -}}
{{- range $path := concat (include "amqp-sidecar-lib.typedForOne" . | fromYaml | values) (list "app.port" "app.path" "app.url") -}}
{{- $at := splitList "." $path -}}
{{- $_ := set $known (first $at) (set (get $known (first $at) | default dict) (last $at) nil) -}}
{{- end -}}
{{- toJson $known -}}
{{- end -}}

{{- define "amqp-sidecar-lib.prefix" -}}
SIDECAR_SUB_{{ upper . | replace "-" "_" }}_
{{- end -}}

{{- /* What subscriptions set: {variable: {value, from}}, as JSON. A URL takes what it lacks from the app's. */ -}}
{{- define "amqp-sidecar-lib.subscribed" -}}
{{- $made := dict -}}
{{- with keys .values.subscriptions | sortAlpha -}}
{{- $_ := set $made "SIDECAR_SUBSCRIPTIONS" (dict "value" (join "," .) "from" "subscriptions") -}}
{{- end -}}
{{- range $name, $one := .values.subscriptions -}}
{{- $set := include "amqp-sidecar-lib.set" (dict "values" $one "typed" (include "amqp-sidecar-lib.typedForOne" $ | fromYaml)) | fromJson -}}
{{- with include "amqp-sidecar-lib.appURL" (dict "app" ($one.app | default dict) "port" $.values.app.port) | fromJson -}}
{{- $_ := set $set "SIDECAR_APP_URL" . -}}
{{- end -}}
{{- range $variable, $x := $set -}}
{{- $variable = trimPrefix "SIDECAR_" $variable | printf "%s%s" (include "amqp-sidecar-lib.prefix" $name) -}}
{{- $from := list -}}
{{- range splitList " and " $x.from -}}{{- $from = append $from (printf "subscriptions.%s.%s" $name .) -}}{{- end -}}
{{- $_ := set $made $variable (dict "value" $x.value "from" (join " and " $from)) -}}
{{- end -}}
{{- end -}}
{{- toJson $made -}}
{{- end -}}

{{- /* extraEnv, and env of the subscriptions with the names that it comes to: a list of {at, entry}, as JSON. */ -}}
{{- define "amqp-sidecar-lib.entries" -}}
{{- $list := list -}}
{{- range .extraEnv -}}
{{- $list = append $list (dict "at" (printf "extraEnv %v" (ternary (get . "name") "" (kindIs "map" .))) "entry" .) -}}
{{- end -}}
{{- range $name, $one := .subscriptions -}}
{{- range $one.env -}}
{{- $variable := trimPrefix "SIDECAR_" (.name | default "") | printf "%s%s" (include "amqp-sidecar-lib.prefix" $name) -}}
{{- $list = append $list (dict "at" (printf "subscriptions.%s.env %v" $name .name) "entry" (set (deepCopy .) "name" $variable)) -}}
{{- end -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- /* What holds for each queue that is consumed, of settings: a list of {name, env, at}, as JSON. One without a name where there
are no subscriptions; none where their names are read in the cluster. */ -}}
{{- define "amqp-sidecar-lib.each" -}}
{{- $list := list -}}
{{- if not (hasKey .env "SIDECAR_SUBSCRIPTIONS") -}}
{{- $list = list (dict "name" "" "env" .env "at" .at) -}}
{{- end -}}
{{- range splitList "," (.env.SIDECAR_SUBSCRIPTIONS | default "") | compact -}}
{{- $name := trim . -}}
{{- $env := deepCopy $.env -}}
{{- $at := deepCopy $.at -}}
{{- $prefix := include "amqp-sidecar-lib.prefix" $name -}}
{{- range $variable, $value := $.env -}}
{{- if hasPrefix $prefix $variable -}}
{{- $of := printf "SIDECAR_%s" (trimPrefix $prefix $variable) -}}
{{- $_ := set $env $of $value -}}
{{- $_ := set $at $of (get $.at $variable) -}}
{{- end -}}
{{- end -}}
{{- range $variable, $value := $env -}}
{{- if kindIs "string" $value -}}{{- $_ := set $env $variable (replace "{subscription}" $name $value) -}}{{- end -}}
{{- end -}}
{{- $list = append $list (dict "name" $name "env" $env "at" $at) -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- /* The longest time that an attempt may take, in milliseconds, of settings. */ -}}
{{- define "amqp-sidecar-lib.longest" -}}
{{- $longest := 0 -}}
{{- range include "amqp-sidecar-lib.each" . | fromJsonArray -}}
{{- $longest = include "amqp-sidecar-lib.milliseconds" (.env.SIDECAR_APP_TIMEOUT | default "30s") | int64 | max $longest -}}
{{- end -}}
{{- $longest -}}
{{- end -}}

{{- /* Names and kinds below subscriptions. A subscription that is null would be missing without a word. */ -}}
{{- define "amqp-sidecar-lib.check.subscriptions" -}}
{{- $known := include "amqp-sidecar-lib.knownForOne" . | fromJson -}}
{{- range $name, $one := . -}}
{{- $at := printf "subscriptions.%s" $name -}}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $name) }}
- subscriptions: {{ quote $name }} is not the name of a subscription. Use lower-case letters, digits and hyphens, beginning with a letter
{{- end }}
{{- if kindIs "invalid" $one }}
- {{ $at }}: is null. Write {{ $name }}: {} for a subscription with the settings of all, or leave it out
{{- end }}
{{- include "amqp-sidecar-lib.check.kinds" (list (dict $name $one) (dict $name $known) "subscriptions") -}}
{{- if kindIs "map" $one -}}
{{- range ternary $one.env list (kindIs "slice" $one.env) -}}
{{- if not (kindIs "map" .) }}
- {{ $at }}.env: {{ toJson . }} is not an item of this list: an item is a map: {name: SIDECAR_…, value: "…"}
{{- else if not (hasPrefix "SIDECAR_" (.name | default "")) }}
- {{ $at }}.env: {{ toJson . }} has no name that starts with SIDECAR_. It has the variables of the sidecar for this subscription; the app's are app.env
{{- else if hasPrefix "SIDECAR_SUB_" .name }}
- {{ $at }}.env {{ .name }}: the name of the subscription is added here. Write the variable without it
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
