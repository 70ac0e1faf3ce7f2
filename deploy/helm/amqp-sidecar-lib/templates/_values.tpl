{{- /* The version of the sidecar that these templates are made for. A template runs with the .Chart of the chart that calls
it, so the library cannot ask its own Chart.yaml; scripts/charts.sh compares the two. */ -}}
{{- define "amqp-sidecar-lib.appVersion" -}}
0.1.0
{{- end -}}

{{- /* What is not given. A library has no values of its own in the caller's subtree, and a user may set a section to
null: whatever reads values reads them through amqp-sidecar-lib.values. */ -}}
{{- define "amqp-sidecar-lib.defaults" -}}
image: {registry: "", repository: amqp-sidecar, tag: "", digest: "", pullPolicy: IfNotPresent}
app:
  url: ""
  path: ""
  healthPath: ""
  stopTimeout: 10s
  token: {existingSecret: "", existingSecretKey: token}
broker:
  url: ""
  existingSecret: ""
  existingSecretKey: url
  usernameKey: ""
  passwordKey: ""
  tls: {existingSecret: "", caKey: ca.crt, certKey: "", keyKey: "", serverName: ""}
topology: {}
dispatch: {}
flow: {}
publish: {enabled: false, existingSecret: "", tokenKey: token}
outbox:
  existingSecret: ""
  existingSecretKey: dsn
  tls: {existingSecret: "", caKey: ca.crt, certKey: "", keyKey: ""}
  migrate: {enabled: false, existingSecret: "", existingSecretKey: dsn, notify: true}
tracing: {headers: {existingSecret: "", existingSecretKey: headers}}
subscriptions: {}
sidecar:
  name: sidecar
  service: ""
  consume: ""
  configCheck: true
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

{{- /* (list values defaults): puts defaults where nothing or null is given. In place, and not by merge, which takes false and ""
for nothing. */ -}}
{{- define "amqp-sidecar-lib.complete" -}}
{{- $given := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- $value := get $given $key -}}
{{- if or (not (hasKey $given $key)) (kindIs "invalid" $value) -}}
{{- $_ := set $given $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" $value) -}}
{{- include "amqp-sidecar-lib.complete" (list $value $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The values of a context (dict "root" $ "values" <subtree>) with the defaults below them, as JSON. */ -}}
{{- define "amqp-sidecar-lib.values" -}}
{{- $defaults := include "amqp-sidecar-lib.defaults" . | fromYaml -}}
{{- $values := deepCopy (.values | default dict) -}}
{{- range $section, $default := $defaults -}}
{{- if and (kindIs "map" $default) (not (kindIs "map" (get $values $section))) -}}
{{- $_ := set $values $section $default -}}
{{- end -}}
{{- end -}}
{{- include "amqp-sidecar-lib.complete" (list $values $defaults) -}}
{{- toJson $values -}}
{{- end -}}

{{- /* A name of 50 characters at most, so that suffixes fit. A longer one ends in a checksum: two that differ only at their ends
shall stay two. */ -}}
{{- define "amqp-sidecar-lib.shorten" -}}
{{- $name := trimAll "-." . -}}
{{- if gt (len $name) 50 -}}
{{- $name = printf "%s-%s" (trunc 43 $name | trimAll "-.") (sha256sum $name | trunc 6) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* What distinguishes a chart from the others of its release: nothing for the chart that was installed; for a part of it the names, or
aliases, of the charts on the way, of which the last may be replaced: (list $ replacement). */ -}}
{{- define "amqp-sidecar-lib.part" -}}
{{- $path := splitList "/charts/" (index . 0).Template.BasePath | rest -}}
{{- with $path -}}
{{- append (initial .) (index $ 1 | default (last . | trimSuffix "/templates")) | join "-" -}}
{{- end -}}
{{- end -}}

{{- /* What a service is called that has no name: as the release, and as a part of another chart <release>-<alias>. */ -}}
{{- define "amqp-sidecar-lib.instance" -}}
{{- list .Release.Name (include "amqp-sidecar-lib.part" (list . "")) | compact | join "-" -}}
{{- end -}}

{{- /* The name that objects of this release start with. A chart with naming of its own gives "name" in the context. */ -}}
{{- define "amqp-sidecar-lib.name" -}}
{{- .name | default (include "amqp-sidecar-lib.shorten" (printf "%s-%s" (include "amqp-sidecar-lib.instance" .root) (include "amqp-sidecar-lib.own" .))) -}}
{{- end -}}

{{- /* What the names of volumes, annotations and objects of a sidecar begin with: amqp-sidecar, and another name for each further
sidecar of the pod. */ -}}
{{- define "amqp-sidecar-lib.own" -}}
amqp-{{ (include "amqp-sidecar-lib.values" . | fromJson).sidecar.name }}
{{- end -}}

{{- define "amqp-sidecar-lib.image" -}}
{{- $i := (include "amqp-sidecar-lib.values" . | fromJson).image -}}
{{- include "amqp-sidecar-lib.reference" (dict "image" $i "tag" (.appVersion | default (include "amqp-sidecar-lib.appVersion" .))) -}}
{{- end -}}

{{- /* The reference to an image of {registry, repository, tag, digest}; "tag" is taken where it names none. */ -}}
{{- define "amqp-sidecar-lib.reference" -}}
{{- $name := list .image.registry .image.repository | compact | join "/" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (include "amqp-sidecar-lib.text" .image.tag | default .tag) -}}
{{- end -}}
{{- end -}}
