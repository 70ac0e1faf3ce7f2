{{- define "amqp-sidecar-lib.check.image" -}}
{{- include "amqp-sidecar-lib.check.reference" (dict "at" "image" "image" .v.image) -}}
{{- end -}}

{{- /* An image of {registry, repository, tag, digest}. */ -}}
{{- define "amqp-sidecar-lib.check.reference" -}}
{{- $i := .image -}}
{{- if and $i.tag $i.digest }}
- {{ .at }}: tag ({{ $i.tag }}) and digest are both set, and a digest is one image whatever the tag says. Keep one
{{- end }}
{{- if not $i.repository }}
- {{ .at }}.repository: is empty, so there is no image to run
{{- else if regexMatch "(:[^/]*|@.*)$" $i.repository }}
- {{ .at }}.repository: {{ quote $i.repository }} has a tag or a digest, and those are {{ .at }}.tag and {{ .at }}.digest. Move it there
{{- end }}
{{- end -}}

{{- /* URLs the chart can see: broker.url or an extraEnv that is no reference. */ -}}
{{- define "amqp-sidecar-lib.urls" -}}
{{- $list := list -}}
{{- range splitList "," (.v.broker.url | default (get .env "SIDECAR_AMQP_URL") | default "") -}}
{{- with trim . -}}{{- $list = append $list . -}}{{- end -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.broker" -}}
{{- $b := .v.broker -}}
{{- $elsewhere := or (hasKey .given "SIDECAR_AMQP_URL") (hasKey .given "SIDECAR_AMQP_URL_FILE") .v.extraEnvFrom -}}
{{- if and $b.url $b.existingSecret }}
- broker: url and existingSecret are both set, and the sidecar reads one. Keep existingSecret, and put the URL into that Secret under the key {{ quote $b.existingSecretKey }}; or keep url
{{- else if and (not $b.url) (not $b.existingSecret) (not $elsewhere) }}
- broker: neither existingSecret nor url is set, so the sidecar would look for RabbitMQ in its own pod. Put the URL into a Secret (kubectl create secret generic NAME --from-literal=url='amqps://user:password@host/vhost') and set broker.existingSecret=NAME
{{- end }}
{{- range $key := list "usernameKey" "passwordKey" }}
{{- if and (get $b $key) (not $b.existingSecret) }}
- broker.{{ $key }}: names a key of broker.existingSecret, and that is not set. Put the URL into a Secret as well, or write user and password into broker.url
{{- end }}
{{- end }}
{{- if and $b.existingSecret $b.usernameKey (not $b.passwordKey) }}
- broker.passwordKey: is empty, and broker.usernameKey names a user. Name the key of {{ $b.existingSecret }} that holds the password
{{- end }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.tls" -}}
{{- $b := .v.broker -}}
{{- $t := $b.tls -}}
{{- $urls := include "amqp-sidecar-lib.urls" . | fromJsonArray -}}
{{- $secure := list -}}
{{- range $urls -}}{{- if hasPrefix "amqps://" . -}}{{- $secure = append $secure . -}}{{- end -}}{{- end -}}
{{- if and $t.existingSecret $urls (not $secure) }}
- broker.tls.existingSecret: broker.url is amqp://, so no certificate would be checked and the link would not be encrypted. Write amqps:// (port 5671), or leave broker.tls empty
{{- else if and $t.serverName $urls (not $secure) }}
- broker.tls.serverName: broker.url is amqp://, so no certificate would be checked. Write amqps:// (port 5671)
{{- end }}
{{- include "amqp-sidecar-lib.check.certificates" (dict "at" "broker.tls" "tls" $t) -}}
{{- end -}}

{{- /* A Secret with certificates, {existingSecret, caKey, certKey, keyKey}. */ -}}
{{- define "amqp-sidecar-lib.check.certificates" -}}
{{- $t := .tls -}}
{{- if and (or $t.certKey $t.keyKey) (not $t.existingSecret) }}
- {{ .at }}.existingSecret: is empty, and certKey and keyKey name keys of it. Set the name of the Secret with the certificate
{{- else if and $t.certKey (not $t.keyKey) }}
- {{ .at }}.keyKey: is empty, and a client certificate (certKey {{ $t.certKey }}) needs its private key. Name the key that holds it, tls.key in a Secret of type kubernetes.io/tls
{{- else if and $t.keyKey (not $t.certKey) }}
- {{ .at }}.certKey: is empty, and a private key (keyKey {{ $t.keyKey }}) needs its certificate. Name the key that holds it, tls.crt in a Secret of type kubernetes.io/tls
{{- else if and $t.existingSecret (not $t.caKey) (not $t.certKey) }}
- {{ .at }}: existingSecret is set and no key of it is taken. Set caKey, or certKey and keyKey, or leave existingSecret empty
{{- end }}
{{- end -}}

{{- /* A Secret of which nothing says what to take. */ -}}
{{- define "amqp-sidecar-lib.check.secrets" -}}
{{- range $at, $what := dict "app.token" "the token" "broker" "the URL" "outbox" "the database's address" "outbox.migrate" "the database's address" "tracing.headers" "the headers" -}}
{{- $section := $.v -}}
{{- range splitList "." $at -}}{{- $section = get $section . -}}{{- end -}}
{{- if and $section.existingSecret (not $section.existingSecretKey) }}
- {{ $at }}.existingSecretKey: is empty. Name the key of {{ $section.existingSecret }} that holds {{ $what }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.check.tracing" -}}
{{- $t := .v.tracing -}}
{{- $endpoint := or (hasKey .env "OTEL_EXPORTER_OTLP_ENDPOINT") (hasKey .env "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") .v.extraEnvFrom -}}
{{- if and $t.enabled (not $endpoint) }}
- tracing.endpoint: is empty, so there is nowhere to send spans. Set a collector's OTLP/HTTP address, e.g. http://otel-collector:4318
{{- end }}
{{- end -}}
