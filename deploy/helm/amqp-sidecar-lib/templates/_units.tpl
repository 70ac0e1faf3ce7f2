{{- /* Milliseconds of a Go duration; "" when it is none. 0.5ms and less come to 0. */ -}}
{{- define "amqp-sidecar-lib.milliseconds" -}}
{{- $text := toString . -}}
{{- if regexMatch "^(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+$" $text -}}
{{- $factor := dict "ns" 0.000001 "us" 0.001 "µs" 0.001 "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ns|us|µs|ms|s|m|h)" $text -1 -}}
{{- $unit := regexFind "[a-zµ]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $factor $unit)) -}}
{{- end -}}
{{- int64 $sum -}}
{{- end -}}
{{- end -}}

{{- /* A delay in milliseconds as it is written in names of queues: 30s, 5m, 1h30m, 500ms. It is Go's way without zeros at the end. */ -}}
{{- define "amqp-sidecar-lib.tier" -}}
{{- $ms := int64 . -}}
{{- if lt $ms 1000 -}}
{{- printf "%dms" $ms -}}
{{- else -}}
{{- $s := printf "%d" (mod (div $ms 1000) 60) -}}
{{- with mod $ms 1000 -}}
{{- $s = printf "%s.%s" $s (regexReplaceAll "0+$" (printf "%03d" .) "") -}}
{{- end -}}
{{- $m := mod (div $ms 60000) 60 -}}
{{- $h := div $ms 3600000 -}}
{{- $text := printf "%ss" $s -}}
{{- if or (gt $h 0) (gt $m 0) -}}
{{- $text = printf "%dm%s" $m $text -}}
{{- end -}}
{{- if gt $h 0 -}}
{{- $text = printf "%dh%s" $h $text -}}
{{- end -}}
{{- if hasSuffix "m0s" $text -}}{{- $text = trimSuffix "0s" $text -}}{{- end -}}
{{- if hasSuffix "h0m" $text -}}{{- $text = trimSuffix "0m" $text -}}{{- end -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{- /* Bytes of a size as the sidecar writes it (16MiB) or of a quantity as Kubernetes does (128Mi); "" when it is neither. */ -}}
{{- define "amqp-sidecar-lib.bytes" -}}
{{- $text := include "amqp-sidecar-lib.text" . -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([eE][0-9]+|m|Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|KiB|MiB|GiB)?$" $text -}}
{{- $unit := regexFind "([mkKMGTP]i?B?)?$" $text -}}
{{- $factor := dict "" 1 "m" 0.001 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "P" 1000000000000000 "Pi" 1125899906842624 -}}
{{- int64 (mulf (trimSuffix $unit $text | float64) (get $factor (trimSuffix "B" $unit))) -}}
{{- end -}}
{{- end -}}

{{- /* A value as text for a variable: lists with commas, whole numbers without an exponent (values files make every number
a float, and 1000000 would become 1e+06). */ -}}
{{- define "amqp-sidecar-lib.text" -}}
{{- if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "amqp-sidecar-lib.text" .) -}}{{- end -}}
{{- join "," $items -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- printf "%.0f" . -}}
{{- else if not (kindIs "invalid" .) -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.isPort" -}}
{{- if regexMatch "^[0-9]{1,5}$" . -}}
{{- if and (gt (int .) 0) (le (int .) 65535) -}}yes{{- end -}}
{{- end -}}
{{- end -}}
