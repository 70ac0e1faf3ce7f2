{{- /* Keys that nothing reads: settings that silently do nothing. The schema lets them pass, because Helm checks it first and
does not say what is meant. A chart that gives its whole values, with its own among them, checks once with their defaults as "known". */ -}}
{{- define "amqp-sidecar-lib.check.keys" -}}
{{- if or .known (ne (toJson .values) (toJson .root.Values)) -}}
{{- $known := include "amqp-sidecar-lib.known" . | fromJson -}}
{{- include "amqp-sidecar-lib.complete" (list $known (.known | default dict)) -}}
{{- include "amqp-sidecar-lib.unknown" (dict "given" .values "known" $known "at" "" "all" $known) -}}
{{- $one := include "amqp-sidecar-lib.knownForOne" . | fromJson -}}
{{- range $name, $given := .values.subscriptions -}}
{{- $all := dict "subscriptions" (dict $name $one) -}}
{{- include "amqp-sidecar-lib.unknown" (dict "given" $given "known" $one "at" (printf "subscriptions.%s" $name) "all" $all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Names that other charts have for a value that has another one here. Names that are nearly the right one, or the right one in
the wrong section, need no line: amqp-sidecar-lib.meant finds those. What follows a value explains it. */ -}}
{{- define "amqp-sidecar-lib.slips" -}}
amqp: [broker.url, broker.existingSecret]
annotations: [podAnnotations, commonAnnotations]
app.containerPort: [app.port]
app.extraEnvVars: [app.env]
app.image.name: [app.image.repository]
app.ports: [app.port]
app.probes: [app.startupProbe, app.livenessProbe, app.readinessProbe]
app.tokenSecret: [app.token]
autoscaling.targetCPUUtilizationPercentage: [autoscaling.hpa.targetCPU]
autoscaling.targetMemoryUtilizationPercentage: [autoscaling.hpa.targetMemory]
broker.host: [broker.url]
broker.password: [broker.passwordKey, broker.url]
broker.port: [broker.url]
broker.secretName: [broker.existingSecret]
broker.user: [broker.usernameKey, broker.url]
broker.username: [broker.usernameKey, broker.url]
broker.vhost: [broker.url]
config: [extraEnv]
containerPort: [app.port]
containerPorts: [app.port]
containerSecurityContext: [app.securityContext, sidecar.securityContext]
containers: [extraContainers]
env: [app.env, extraEnv]
envVars: [app.env, extraEnv]
externalRabbitmq: [broker]
extraDeploy: [extraObjects]
extraEnvVars: [extraEnv, app.env]
extraManifests: [extraObjects]
hpa: [autoscaling]
image.name: [image.repository]
imagePullPolicy: [app.image.pullPolicy, image.pullPolicy]
ingress: [extraObjects]
initContainers: [extraInitContainers]
keda: [autoscaling.keda]
labels: [podLabels, commonLabels]
lifecycleHooks: [app.lifecycle]
metrics.enabled: [metrics.podMonitor.enabled]
metrics.serviceMonitor: [metrics.podMonitor]
monitoring: [metrics]
persistence: [extraVolumes, extraVolumeMounts]
podDisruptionBudget: [pdb]
ports: [app.port]
probes: [app.startupProbe, app.livenessProbe, app.readinessProbe]
rabbitmq: [broker.url, broker.existingSecret]
replicas: [replicaCount]
securityContext: [app.securityContext, sidecar.securityContext, podSecurityContext]
service: ["sidecar.service (the service's name)", "app.port (the app's port)", "extraObjects (a Service, which the chart does not make)"]
serviceMonitor: [metrics.podMonitor]
serviceAccount.automountServiceAccountToken: [serviceAccount.automount]
serviceAccount.automountToken: [serviceAccount.automount]
sidecar.env: [extraEnv]
sidecar.image: [image]
sidecars: [extraContainers]
tracing.headersSecret: [tracing.headers]
topology.name: [topology.preset]
topology.type: [topology.preset]
updateStrategy: [strategy]
volumes: [extraVolumes]
{{- end -}}

{{- /* All values of the sidecar as a tree, as JSON. A map without keys is one of which Kubernetes knows those below it. */ -}}
{{- define "amqp-sidecar-lib.known" -}}
{{- $known := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- $typed := include "amqp-sidecar-lib.typed" . | fromYaml | values -}}
{{- range $path := concat $typed (list "app.port" "publish.address" "sidecar.adminPort" "tracing.enabled" "global") -}}
{{- $section := $known -}}
{{- range splitList "." $path | initial -}}{{- $section = get $section . -}}{{- end -}}
{{- $_ := set $section (splitList "." $path | last) nil -}}
{{- end -}}
{{- $_ := set $known.sidecar "securityContext" dict -}}
{{- $_ := set $known.sidecar "resources" (dict "requests" dict "limits" dict) -}}
{{- toJson $known -}}
{{- end -}}

{{- define "amqp-sidecar-lib.unknown" -}}
{{- range $key, $value := .given -}}
{{- $path := list $.at $key | compact | join "." -}}
{{- $inner := get $.known $key -}}
{{- if not (hasKey $.known $key) -}}
{{- if or $.at (not (hasPrefix "x-" $key)) }}
- {{ $path }}: unknown key. {{ include "amqp-sidecar-lib.meant" (dict "at" $.at "key" $key "path" $path "known" $.known "all" $.all) }}
{{- end }}
{{- else if and $inner (kindIs "map" $inner) (kindIs "map" $value) -}}
{{- include "amqp-sidecar-lib.unknown" (dict "given" $value "known" $inner "at" $path "all" $.all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What may be meant by an unknown key: what other charts call so; else a key of this section that differs by one or two
letters; else keys of this name in other sections. Where the app's container is not the chart's, nothing else is meant by a
key below "app". */ -}}
{{- define "amqp-sidecar-lib.meant" -}}
{{- $paths := include "amqp-sidecar-lib.paths" (dict "known" .all "at" "") | trim | splitList " " -}}
{{- $meant := list -}}
{{- range index (include "amqp-sidecar-lib.slips" . | fromYaml) .path -}}
{{- if has (splitList " " . | first) $paths -}}{{- $meant = append $meant . -}}{{- end -}}
{{- end -}}
{{- if not $meant -}}
{{- $least := 3 -}}
{{- range $name := keys .known | sortAlpha -}}
{{- $distance := include "amqp-sidecar-lib.distance" (list (lower $.key) (lower $name)) | int -}}
{{- if and (lt $distance $least) (le (mul 2 $distance) (len $name)) -}}
{{- $least = $distance -}}
{{- $meant = list (list $.at $name | compact | join ".") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (or $meant (and (eq .at "app") (not (hasKey .all.app "image")))) -}}
{{- range $paths -}}
{{- if eq (splitList "." . | last | lower) (lower $.key) -}}{{- $meant = append $meant . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $meant (lt (len $meant) 4) -}}
Did you mean {{ join " or " $meant }}?
{{- else -}}
Known are {{ keys .known | sortAlpha | join ", " }}
{{- end -}}
{{- end -}}

{{- /* The paths of all values, with a space before each. */ -}}
{{- define "amqp-sidecar-lib.paths" -}}
{{- range $key, $inner := .known -}}
{{- $path := list $.at $key | compact | join "." }} {{ $path -}}
{{- if kindIs "map" $inner -}}{{- include "amqp-sidecar-lib.paths" (dict "known" $inner "at" $path) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* How many letters have to be added, removed or replaced to make one word of the other, by rows as Wagner and Fischer do. */ -}}
{{- define "amqp-sidecar-lib.distance" -}}
{{- $letters := splitList "" (last .) -}}
{{- $row := untilStep 0 (int (add1 (len $letters))) 1 -}}
{{- range $i, $a := splitList "" (first .) -}}
{{- $next := list (int (add1 $i)) -}}
{{- range $j, $b := $letters -}}
{{- $next = append $next (min (add (index $row $j) (ternary 0 1 (eq $a $b))) (add1 (index $row (int (add1 $j)))) (add1 (last $next))) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end -}}
