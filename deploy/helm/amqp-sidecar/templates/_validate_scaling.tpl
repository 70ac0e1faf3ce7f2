{{- define "amqp-sidecar.check.autoscaling" -}}
{{- $v := .root.Values -}}
{{- $a := $v.autoscaling | default dict -}}
{{- if $a.enabled -}}
{{- if not (kindIs "invalid" $v.replicaCount) }}
- replicaCount: autoscaling decides the number of pods, and each upgrade would put it back to {{ int $v.replicaCount }}. Leave it empty and set autoscaling.minReplicas
{{- end }}
{{- if gt (int $a.minReplicas) (int $a.maxReplicas) }}
- autoscaling.minReplicas: {{ int $a.minReplicas }} is more than maxReplicas ({{ int $a.maxReplicas }}). Raise the latter
{{- end }}
{{- if lt (int $a.maxReplicas) 1 }}
- autoscaling.maxReplicas: {{ int $a.maxReplicas }} leaves no pod to scale to. Set 1 at least
{{- end }}
{{- if and (hasKey ($a.behavior | default dict) "scaleDown") (ne (int $a.scaleDownStabilizationSeconds) 300) }}
- autoscaling.behavior: has a scaleDown of its own, so scaleDownStabilizationSeconds would do nothing. Keep one of the two
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.check.keda" -}}
{{- $a := .root.Values.autoscaling | default dict -}}
{{- $k := $a.keda | default dict -}}
{{- if and $a.enabled (eq $a.type "keda") -}}
{{- $sources := compact (list $k.managementURL $k.existingSecret $k.triggerAuthentication) -}}
{{- if not $sources }}
- autoscaling.keda: KEDA asks the management API for the length of the queue, and nothing says where that is. Set existingSecret to a Secret whose key {{ $k.existingSecretKey | default "host" }} has http://user:password@rabbitmq:15672/vhost; or managementURL, or triggerAuthentication
{{- else if gt (len $sources) 1 }}
- autoscaling.keda: more than one of managementURL, existingSecret and triggerAuthentication is set, and one of them says where the management API is. Keep one
{{- end }}
{{- with $k.managementURL }}
{{- if regexMatch "^amqps?://" . }}
- autoscaling.keda.managementURL: this is an AMQP URL, over which KEDA would see ready messages only and remove pods with messages in flight. Write that of the management API, http://user:password@rabbitmq:15672/vhost
{{- else if not (regexMatch "^https?://[^/]+" .) }}
- autoscaling.keda.managementURL: is not an http:// or https:// URL. Write http://user:password@rabbitmq:15672/vhost
{{- end }}
{{- end }}
{{- if or ($a.hpa | default dict).targetCPU ($a.hpa | default dict).targetMemory ($a.hpa | default dict).metrics }}
- autoscaling.hpa: is set with autoscaling.type=keda, and KEDA makes the one HorizontalPodAutoscaler that a Deployment can have. Leave autoscaling.hpa empty (more triggers go into autoscaling.keda.triggers), or set type=hpa
{{- end }}
{{- range include "amqp-sidecar-lib.each" . | fromJsonArray }}
{{- $text := .env.SIDECAR_APP_TIMEOUT | default "30s" }}
{{- $timeout := include "amqp-sidecar-lib.milliseconds" $text | int64 -}}
{{- if and (not (kindIs "invalid" $k.cooldownPeriod)) (le (mul 1000 (int64 $k.cooldownPeriod)) $timeout) }}
- autoscaling.keda.cooldownPeriod: {{ int64 $k.cooldownPeriod }} seconds are not longer than an attempt may take ({{ .at.SIDECAR_APP_TIMEOUT }} {{ $text }}), so the last pod could be removed with a message in flight. Raise it above {{ div (add $timeout 999) 1000 }}, or leave it empty
{{- end }}
{{- end }}
{{- if eq (get .env "SIDECAR_CONSUME" | default "") "off" }}
- autoscaling.type: keda goes by the length of the queue that is consumed, and nothing is ({{ .at.SIDECAR_CONSUME }}=off). Set autoscaling.type=hpa
{{- else if hasKey .env "SIDECAR_PLAN_FILE" }}
- autoscaling.keda: KEDA has to know the queue's name, and it is in a file (SIDECAR_PLAN_FILE). Set autoscaling.type=hpa, or put a ScaledObject of your own into extraObjects
{{- else if not (include "amqp-sidecar-lib.queues" .lib | fromJsonArray) }}
- autoscaling.keda: KEDA has to know the queue's name, and it is made from a variable that is read in the cluster (valueFrom). Set sidecar.service or topology.queue as a value
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.check.hpa" -}}
{{- $a := .root.Values.autoscaling | default dict -}}
{{- $h := $a.hpa | default dict -}}
{{- $k := $a.keda | default dict -}}
{{- if and $a.enabled (eq $a.type "hpa") -}}
{{- if lt (int $a.minReplicas) 1 }}
- autoscaling.minReplicas: a HorizontalPodAutoscaler cannot scale to 0, because nothing would ever use CPU again. Set 1, or type=keda
{{- end }}
{{- if or $k.managementURL $k.existingSecret $k.triggerAuthentication $k.triggers }}
- autoscaling.keda: is set with autoscaling.type=hpa, and only one of the two can decide the number of pods. Set type=keda, or leave autoscaling.keda empty
{{- end }}
{{- $r := (.root.Values.app | default dict).resources | default dict -}}
{{- range $metric, $wanted := dict "cpu" (or $h.targetCPU (and (not $h.targetMemory) (not $h.metrics))) "memory" $h.targetMemory -}}
{{- if and $wanted (not (get ($r.requests | default dict) $metric)) (not (get ($r.limits | default dict) $metric)) }}
- app.resources.requests.{{ $metric }}: is empty, and the autoscaler takes a percentage of it: it would never scale. Set it, or autoscaling.hpa.metrics
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
