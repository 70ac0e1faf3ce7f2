{{- /* Fails with everything that is wrong with the values, the sidecar's and those of this chart. */ -}}
{{- define "amqp-sidecar.validate" -}}
{{- $known := include "amqp-sidecar.defaults" . | fromYaml -}}
{{- range list "enabled" "amqp-sidecar-lib" -}}{{- $_ := set $known . nil -}}{{- end -}}
{{- $_ := set $known.metrics.dashboard "labels" nil -}}
{{- $lib := dict "root" . "values" .Values "name" (include "amqp-sidecar.fullname" .) "appVersion" .Chart.AppVersion "known" $known -}}
{{- $c := include "amqp-sidecar-lib.settings" $lib | fromJson -}}
{{- $c = merge (dict "root" . "lib" $lib) $c -}}
{{- $problems := include "amqp-sidecar-lib.problems" $lib -}}
{{- range $part := list "app" "labels" "containers" "volumes" "workload" "autoscaling" "keda" "hpa" "pdb" "crds" -}}
{{- $problems = printf "%s\n%s" $problems (include (printf "amqp-sidecar.check.%s" $part) $c) -}}
{{- end -}}
{{- include "amqp-sidecar-lib.refuse" $problems -}}
{{- end -}}

{{- define "amqp-sidecar.check.app" -}}
{{- $a := .root.Values.app | default dict -}}
{{- if not $a.image.repository }}
- app.image.repository: is empty, so there is no app to bring the messages to. Set your app's image, e.g. app.image.repository=registry.example.com/billing and app.image.tag=1.4.2
{{- else }}
{{- include "amqp-sidecar-lib.check.reference" (dict "at" "app.image" "image" $a.image) -}}
{{- end }}
{{- if and ($a.lifecycle | default dict).preStop .values.sidecar.preStop }}
- app.lifecycle.preStop: a container has one such hook, and the chart needs the app's to hold its SIGTERM back until the sidecar has drained. Leave it out; or set sidecar.preStop=false and call GET http://127.0.0.1:{{ include "amqp-sidecar-lib.adminPort" .lib }}/drained in yours, and give the sidecar its own hook another way
{{- end }}
{{- $volumeMounts := .root.Values.extraVolumeMounts -}}
{{- range include "amqp-sidecar-lib.each" . | fromJsonArray -}}
{{- $url := get .env "SIDECAR_APP_URL" | default "" -}}
{{- if hasPrefix "unix:///" $url -}}
{{- $file := regexFind "/[^:]*" (trimPrefix "unix://" $url) -}}
{{- $theirs := include "amqp-sidecar-lib.mounted" (dict "mounts" $volumeMounts "file" $file) | splitList " " -}}
{{- $shared := false -}}
{{- range $a.volumeMounts -}}{{- if has .name $theirs -}}{{- $shared = true -}}{{- end -}}{{- end -}}
{{- if and (gt (len $theirs) 1) (not $shared) }}
- app.volumeMounts: the app does not mount the volume ({{ join " " $theirs | trim }}) in which the sidecar searches for the socket {{ $file }} ({{ .at.SIDECAR_APP_URL }}). Mount it where the app makes the socket
{{- end }}
{{- end -}}
{{- end -}}
{{- range $a.env -}}
{{- if and (kindIs "map" .) (eq (.name | default "") "SIDECAR_PUBLISH_URL") }}
- app.env: SIDECAR_PUBLISH_URL is set by the chart, with publish.enabled. Leave it out
{{- else if and (kindIs "map" .) (hasPrefix "SIDECAR_" (.name | default "")) }}
- app.env: {{ .name }} is a variable of the sidecar, and app.env is the app's. Move it to extraEnv
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.check.containers" -}}
{{- $own := .values.sidecar.name -}}
{{- if eq $own "app" }}
- sidecar.name: the pod has a container "app" already, your app's. Choose another name
{{- end }}
{{- $seen := list "app" $own -}}
{{- range $key := list "extraInitContainers" "extraContainers" -}}
{{- range get $.root.Values $key -}}
{{- $name := .name | default "" -}}
{{- if has $name $seen }}
- {{ $key }}: the pod has a container {{ quote $name }} already{{ if eq $name $own }}, the chart's own. Configure that with sidecar and extraEnv{{ else if eq $name "app" }}, your app's{{ end }}. Choose another name
{{- end }}
{{- $seen = append $seen $name -}}
{{- if not .image }}
- {{ $key }} {{ $name }}: has no image. Set it, with a tag or digest
{{- end }}
{{- $runs := or (eq $key "extraContainers") (eq (.restartPolicy | default "") "Always") -}}
{{- range .ports -}}
{{- $port := include "amqp-sidecar-lib.text" .containerPort -}}
{{- range $variable, $address := include "amqp-sidecar-lib.listeners" $ | fromJson -}}
{{- if and $runs (eq $port (include "amqp-sidecar-lib.port" $address)) }}
- {{ $key }} {{ $name }}: port {{ $port }} is that of the sidecar ({{ $variable }}), and containers of a pod share its network. Let it listen on another one, or move the sidecar's ({{ get $.at $variable | default "sidecar.control.address" }})
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.check.volumes" -}}
{{- $names := list -}}
{{- range .values.extraVolumes -}}
{{- if has (.name | default "") $names }}
- extraVolumes: two are named {{ quote .name }}. Give each a name of its own
{{- end }}
{{- $names = append $names (.name | default "") -}}
{{- end -}}
{{- range (include "amqp-sidecar-lib.mounts" .lib | fromJson).volumes -}}{{- $names = append $names .name -}}{{- end -}}
{{- range $key, $mounts := dict "app.volumeMounts" (.root.Values.app | default dict).volumeMounts "extraVolumeMounts" .values.extraVolumeMounts -}}
{{- range $mounts -}}
{{- if not (has (.name | default "") $names) }}
- {{ $key }}: there is no volume {{ .name | default "" | quote }}. Add it to extraVolumes
{{- end }}
{{- if and (eq $key "extraVolumeMounts") (regexMatch "^/etc/amqp-sidecar(/|$)" (.mountPath | default "")) }}
- {{ $key }}: {{ quote .mountPath }} is where the chart mounts the sidecar's Secrets. Mount it elsewhere
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar.check.workload" -}}
{{- $values := .root.Values -}}
{{- $w := merge (dict) ($values.workload | default dict) (dict "kind" "Deployment") -}}
{{- if ne $w.kind "Deployment" -}}
{{- if not .values.sidecar.native }}
- workload.kind: a {{ $w.kind }} with sidecar.native=false never ends, because the sidecar's container runs on when the app has ended. Set sidecar.native=true (Kubernetes 1.29), or use a Deployment
{{- end }}
{{- if ($values.autoscaling).enabled }}
- autoscaling.enabled: scales a Deployment, and this is a {{ $w.kind }}. Set autoscaling.enabled=false; workload.parallelism is the number of pods
{{- end }}
{{- if ($values.pdb).enabled }}
- pdb.enabled: counts the pods of a Deployment, and those of a {{ $w.kind }} come and go. Set pdb.enabled=false
{{- end }}
{{- if not (kindIs "invalid" $values.replicaCount) }}
- replicaCount: is for a Deployment, and this is a {{ $w.kind }}. Leave it empty; workload.parallelism is the number of pods
{{- end }}
{{- if $values.strategy }}
- strategy: is for a Deployment, and this is a {{ $w.kind }}. Leave it empty
{{- end }}
{{- else -}}
{{- $rolling := ($values.strategy | default dict).rollingUpdate | default dict }}
{{- if and (regexMatch "^0+%?$" (include "amqp-sidecar-lib.text" $rolling.maxSurge)) (regexMatch "^0+%?$" (include "amqp-sidecar-lib.text" $rolling.maxUnavailable)) }}
- strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced. Set one of them to 1
{{- end }}
{{- range $key := list "parallelism" "completions" "backoffLimit" "activeDeadlineSeconds" "ttlSecondsAfterFinished" -}}
{{- if include "amqp-sidecar-lib.text" (get $w $key) }}
- workload.{{ $key }}: is for Jobs, and this is a Deployment. Leave it empty, or set workload.kind
{{- end }}
{{- end -}}
{{- end -}}
{{- if and (eq $w.kind "CronJob") (not $w.schedule) }}
- workload.schedule: is empty. Say when the CronJob runs, e.g. "*/10 * * * *"
{{- else if and (eq $w.kind "CronJob") (regexMatch "TZ *=" $w.schedule) }}
- workload.schedule: {{ quote $w.schedule }} has a time zone in it, which Kubernetes refuses. Set workload.timeZone
{{- else if and (eq $w.kind "CronJob") (not (regexMatch "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [0-9hms.]+|[^ ]+( +[^ ]+){4})$" (trim $w.schedule))) }}
- workload.schedule: {{ quote $w.schedule }} has not five fields: minute, hour, day of the month, month and day of the week, e.g. "*/10 * * * *"
{{- else if and (ne $w.kind "CronJob") $w.schedule }}
- workload.schedule: is for a CronJob, and this is a {{ $w.kind }}. Set workload.kind=CronJob, or leave it empty
{{- end }}
{{- end -}}

{{- define "amqp-sidecar.check.pdb" -}}
{{- $p := .root.Values.pdb | default dict -}}
{{- $a := .root.Values.autoscaling | default dict -}}
{{- if $p.enabled -}}
{{- $pods := ternary 1 .root.Values.replicaCount (kindIs "invalid" .root.Values.replicaCount) | int -}}
{{- if $a.enabled -}}{{- $pods = $a.minReplicas | int -}}{{- end -}}
{{- $min := include "amqp-sidecar-lib.text" $p.minAvailable -}}
{{- $max := include "amqp-sidecar-lib.text" $p.maxUnavailable -}}
{{- if and $min $max }}
- pdb: minAvailable and maxUnavailable are both set, and Kubernetes takes one. Keep maxUnavailable, which fits any number of pods
{{- else if $max -}}
{{- if regexMatch "^(0+%?|-.*)$" $max }}
- pdb.maxUnavailable: {{ $max }} lets no pod go, so no node could ever be drained. Set it to 1 or more
{{- end }}
{{- else if $min -}}
{{- $need := $min | trimSuffix "%" | int -}}
{{- if hasSuffix "%" $min -}}{{- $need = div (add (mul $need $pods) 99) 100 | int -}}{{- end -}}
{{- if and (gt $need 0) (ge $need $pods) }}
- pdb.minAvailable: {{ $min }} of {{ $pods }} pod{{ if ne $pods 1 }}s{{ end }} lets none go, so no node could ever be drained. Set {{ ternary "autoscaling.minReplicas" "replicaCount" ($a.enabled | default false) }} to {{ add1 $need }} at least, or pdb.maxUnavailable=1 instead
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Kinds that come with an operator. A cluster lists kinds, and helm template without one only groups: what is not known there
is not judged. */ -}}
{{- define "amqp-sidecar.check.crds" -}}
{{- $api := .root.Capabilities.APIVersions -}}
{{- if $api.Has "apps/v1/Deployment" -}}
{{- $v := .root.Values -}}
{{- $m := $v.metrics | default dict -}}
{{- if and ($m.podMonitor).enabled (not ($api.Has "monitoring.coreos.com/v1/PodMonitor")) }}
- metrics.podMonitor.enabled: this cluster has no PodMonitor. Install the Prometheus operator first; without one let Prometheus scrape port {{ include "amqp-sidecar-lib.adminPort" .lib }} of the pods by annotations (podAnnotations)
{{- end }}
{{- if and ($m.prometheusRule).enabled (not ($api.Has "monitoring.coreos.com/v1/PrometheusRule")) }}
- metrics.prometheusRule.enabled: this cluster has no PrometheusRule. Install the Prometheus operator first, or load files/alerts.yaml of this chart into Prometheus
{{- end }}
{{- if and ($v.autoscaling).enabled (eq $v.autoscaling.type "keda") (not ($api.Has "keda.sh/v1alpha1/ScaledObject")) }}
- autoscaling.type: this cluster has no KEDA. Install it first, or set autoscaling.type=hpa
{{- end }}
{{- end -}}
{{- end -}}
