{{- /* What the chart has beside the sidecar's values, as values.yaml says it. Helm takes a key that is set to null out of the
values, and null means "as if I had not set it". Every template that is not a named one begins with amqp-sidecar.complete. */ -}}
{{- define "amqp-sidecar.defaults" -}}
imagePullSecrets: []
nameOverride: ""
fullnameOverride: ""
commonLabels: {}
commonAnnotations: {}
podLabels: {}
podAnnotations: {}
app:
  image: {registry: "", repository: "", tag: "", digest: "", pullPolicy: ""}
  port: null
  command: []
  args: []
  env: []
  envFrom: []
  resources: {}
  startupProbe: {}
  livenessProbe: {}
  readinessProbe: {}
  lifecycle: {}
  securityContext: {}
  volumeMounts: []
extraContainers: []
extraInitContainers: []
extraObjects: []
workload:
  kind: Deployment
  schedule: ""
  timeZone: ""
  concurrencyPolicy: Forbid
  parallelism: null
  completions: null
  backoffLimit: null
  activeDeadlineSeconds: null
  ttlSecondsAfterFinished: null
  restartPolicy: Never
replicaCount: null
strategy: {}
revisionHistoryLimit: null
minReadySeconds: null
autoscaling:
  enabled: false
  type: keda
  minReplicas: 1
  maxReplicas: 10
  scaleDownStabilizationSeconds: 300
  keda:
    managementURL: ""
    existingSecret: ""
    existingSecretKey: host
    triggerAuthentication: ""
    queueLength: null
    pollingInterval: null
    cooldownPeriod: null
    triggers: []
  hpa: {targetCPU: null, targetMemory: null, metrics: []}
  behavior: {}
pdb: {enabled: false, minAvailable: null, maxUnavailable: null}
topologySpreadConstraints: []
affinity: {}
tolerations: []
nodeSelector: {}
priorityClassName: ""
runtimeClassName: ""
podSecurityContext: {}
serviceAccount: {create: true, name: "", annotations: {}, automount: false}
networkPolicy:
  enabled: false
  brokerPeers: []
  brokerPorts: []
  databasePeers: []
  databasePorts: []
  metricsPeers: []
  extraIngress: []
  extraEgress: []
metrics:
  podMonitor: {enabled: false, labels: {}, interval: "", scrapeTimeout: "", relabelings: [], metricRelabelings: []}
  prometheusRule:
    enabled: false
    labels: {}
    alertLabels: {}
    runbookURL: ""
    job: ""
    disabled: []
  dashboard: {enabled: false, labels: {grafana_dashboard: "1"}, annotations: {}, namespace: ""}
tests: {enabled: true}
{{- end -}}

{{- define "amqp-sidecar.complete" -}}
{{- $kinds := include "amqp-sidecar-lib.known" . | fromJson -}}
{{- include "amqp-sidecar-lib.complete" (list $kinds (include "amqp-sidecar.defaults" . | fromYaml)) -}}
{{- include "amqp-sidecar-lib.refuse" (include "amqp-sidecar-lib.check.kinds" (list .Values $kinds "")) -}}
{{- range $of := list "amqp-sidecar-lib.defaults" "amqp-sidecar.defaults" -}}
{{- include "amqp-sidecar-lib.complete" (list $.Values (include $of $ | fromYaml)) -}}
{{- end -}}
{{- end -}}
