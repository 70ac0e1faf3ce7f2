{{- /* The version of the sidecar that these templates are made for. A template runs with the .Chart of the chart that calls
it, so the library cannot ask its own Chart.yaml; scripts/charts.sh compares the two. */ -}}
{{- define "amqp-sidecar-lib.appVersion" -}}
0.1.0
{{- end -}}

{{- /* What is not given. A library has no values of its own in the caller's subtree, and somebody may set a section to
null: whatever reads values reads them through amqp-sidecar-lib.values. */ -}}
{{- define "amqp-sidecar-lib.defaults" -}}
image: {registry: "", repository: amqp-sidecar, tag: "", digest: "", pullPolicy: IfNotPresent}
service: {name: ""}
app:
  url: ""
  path: ""
  healthPath: ""
  stopTimeout: 10s
  tokenSecret: {name: "", key: token}
broker:
  url: ""
  existingSecret: ""
  existingSecretKey: url
  usernameKey: ""
  passwordKey: ""
  sasl: ""
  heartbeat: ""
  tls: {existingSecret: "", caKey: ca.crt, certKey: "", keyKey: "", serverName: ""}
topology: {}
dispatch: {}
flow: {}
tracing: {headersSecret: {name: "", key: headers}}
sidecar:
  native: true
  readiness: none
  preStop: true
  control: {existingSecret: "", tokenKey: token, readTokenKey: ""}
  resources:
    requests: {cpu: 20m, memory: 32Mi}
    limits: {memory: ""}
  securityContext:
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL]}
    readOnlyRootFilesystem: true
    runAsGroup: 65532
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile: {type: RuntimeDefault}
terminationGracePeriodSeconds: 60
extraEnv: []
extraEnvFrom: []
extraVolumes: []
extraVolumeMounts: []
{{- end -}}

{{- /* The values of a context (dict "root" $ "values" <subtree>) with the defaults below them, as JSON. */ -}}
{{- define "amqp-sidecar-lib.values" -}}
{{- $given := deepCopy (.values | default dict) -}}
{{- $values := mergeOverwrite (include "amqp-sidecar-lib.defaults" . | fromYaml) $given -}}
{{- range $section, $default := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- if and (kindIs "map" $default) (not (kindIs "map" (get $values $section))) -}}
{{- $_ := set $values $section $default -}}
{{- end -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{- /* The name that objects of this release start with. A chart with naming of its own gives "name" in the context. */ -}}
{{- define "amqp-sidecar-lib.name" -}}
{{- .name | default (printf "%s-amqp-sidecar" .root.Release.Name | trunc 50 | trimSuffix "-") -}}
{{- end -}}

{{- define "amqp-sidecar-lib.image" -}}
{{- $i := (include "amqp-sidecar-lib.values" . | fromJson).image -}}
{{- $name := list $i.registry $i.repository | compact | join "/" -}}
{{- if $i.digest -}}
{{- printf "%s@%s" $name $i.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($i.tag | default .appVersion | default (include "amqp-sidecar-lib.appVersion" .)) -}}
{{- end -}}
{{- end -}}
