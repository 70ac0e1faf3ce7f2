{{- define "amqp-sidecar-lib.check.image" -}}
{{- $i := .v.image -}}
{{- if and $i.tag $i.digest }}
- image: tag ({{ $i.tag }}) and digest are both set, and a digest is one image whatever the tag says. Keep one
{{- end }}
{{- if and $i.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $i.digest)) }}
- image.digest: {{ quote $i.digest }} is no digest. It looks like sha256:… with 64 hexadecimal digits
{{- end }}
{{- if not $i.repository }}
- image.repository: is empty, so there is no image to run
{{- else if regexMatch "(:[^/]*|@.*)$" $i.repository }}
- image.repository: {{ quote $i.repository }} has a tag or a digest, and those are image.tag and image.digest. Move it there
{{- else if include "amqp-sidecar-lib.wrong.image" $i.repository }}
- image.repository: {{ quote $i.repository }} {{ include "amqp-sidecar-lib.wrong.image" $i.repository }}
{{- end }}
{{- with $i.registry }}
{{- if hasSuffix "/" . }}
- image.registry: {{ quote . }} ends with /, which the chart adds itself. Write {{ trimSuffix "/" . }}
{{- else if include "amqp-sidecar-lib.wrong.image" (printf "%s/name" .) }}
- image.registry: {{ quote . }} {{ ternary (include "amqp-sidecar-lib.wrong.image" .) "is no registry. Write registry.example.com:5000 or registry.example.com/team" (contains "://" .) }}
{{- end }}
{{- end }}
{{- if and $i.tag (not (regexMatch "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$" (toString $i.tag))) }}
- image.tag: {{ toString $i.tag | quote }} is no tag. It has letters, digits, ., _ and -, and 128 of them at most
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
{{- range $i, $url := include "amqp-sidecar-lib.urls" . | fromJsonArray }}
{{- if not (regexMatch "^amqps?://" $url) }}
- broker.url: URL {{ add1 $i }} does not begin with amqp:// or amqps://. Write amqps://user:password@host:5671/vhost{{ if regexMatch "^https?://" $url }}; the management URL for KEDA is autoscaling.keda.managementUrl{{ end }}
{{- else if regexMatch "[?#]" $url }}
- broker.url: URL {{ add1 $i }} has a query or a fragment, which the sidecar refuses. What it could say has a value of its own; in a password write %3F for ? and %23 for #
{{- else if regexMatch "[\\x00-\\x20\\x7f]" $url }}
- broker.url: URL {{ add1 $i }} has a space in it. In a password write %20
{{- else if gt (regexFindAll "@" $url -1 | len) 1 }}
- broker.url: URL {{ add1 $i }} has more than one @. In a user, password or vhost write %40, and %2F for a slash
{{- else }}
{{- with include "amqp-sidecar-lib.wrong.amqp" $url }}
- broker.url: URL {{ add1 $i }} {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- with $b.url | default (get .env "SIDECAR_AMQP_URL") }}
{{- $seen := list }}
{{- range splitList "," . }}
{{- if not (trim .) }}
- broker.url: has a comma with no URL on one of its sides. Leave it out; in a password write %2C
{{- else if has (trim .) $seen }}
- broker.url: has one URL twice, and the sidecar would only dial it twice. Leave one out
{{- end }}
{{- $seen = append $seen (trim .) }}
{{- end }}
{{- end }}
{{- range $key := list "usernameKey" "passwordKey" }}
{{- if and (get $b $key) (not $b.existingSecret) }}
- broker.{{ $key }}: names a key of broker.existingSecret, and that is not set. Put the URL into a Secret as well, or write user and password into broker.url
{{- end }}
{{- end }}
{{- if and $b.existingSecret $b.usernameKey (not $b.passwordKey) (ne (get .env "SIDECAR_AMQP_SASL" | default "") "external") }}
- broker.passwordKey: is empty, and broker.usernameKey names a user. Name the key of {{ $b.existingSecret }} that holds the password
{{- end }}
{{- if and $b.existingSecret (not $b.existingSecretKey) }}
- broker.existingSecretKey: is empty. Name the key of {{ $b.existingSecret }} that holds the URL
{{- end }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.tls" -}}
{{- $b := .v.broker -}}
{{- $t := $b.tls -}}
{{- $urls := include "amqp-sidecar-lib.urls" . | fromJsonArray -}}
{{- $secure := list -}}
{{- range $urls -}}{{- if hasPrefix "amqps://" . -}}{{- $secure = append $secure . -}}{{- end -}}{{- end -}}
{{- if and $t.existingSecret $urls (not $secure) }}
- broker.tls.existingSecret: broker.url is amqp://, so no certificate would be looked at and the link would not be encrypted. Write amqps:// (port 5671), or leave broker.tls empty
{{- else if and $t.serverName $urls (not $secure) }}
- broker.tls.serverName: broker.url is amqp://, so no certificate would be looked at. Write amqps:// (port 5671)
{{- end }}
{{- if and $t.certKey (not $t.keyKey) }}
- broker.tls.keyKey: is empty, and a client certificate (certKey {{ $t.certKey }}) is of no use without its private key. Name the key that holds it, tls.key in a Secret of type kubernetes.io/tls
{{- else if and $t.keyKey (not $t.certKey) }}
- broker.tls.certKey: is empty, and a private key (keyKey {{ $t.keyKey }}) is of no use without its certificate. Name the key that holds it, tls.crt in a Secret of type kubernetes.io/tls
{{- end }}
{{- if and (or $t.certKey $t.keyKey) (not $t.existingSecret) }}
- broker.tls.existingSecret: is empty, and certKey and keyKey name keys of it. Set the name of the Secret with the certificate
{{- end }}
{{- if and $t.existingSecret (not $t.caKey) (not $t.certKey) (not $t.keyKey) }}
- broker.tls: existingSecret is set and no key of it is taken. Set caKey, or certKey and keyKey, or leave existingSecret empty
{{- end }}
{{- if eq (get .env "SIDECAR_AMQP_SASL" | default "") "external" }}
{{- if not (or (and $t.existingSecret $t.certKey) (hasKey .given "SIDECAR_AMQP_TLS_CERT_FILE")) }}
- {{ .at.SIDECAR_AMQP_SASL }}: external takes the user from a client certificate, and there is none. Set broker.tls.existingSecret, certKey (tls.crt) and keyKey (tls.key)
{{- end }}
{{- if lt (len $secure) (len $urls) }}
- {{ .at.SIDECAR_AMQP_SASL }}: external needs TLS on every URL of broker.url. Write amqps:// (port 5671)
{{- end }}
{{- if or $b.usernameKey $b.passwordKey }}
- {{ .at.SIDECAR_AMQP_SASL }}: external takes the user from the certificate, so usernameKey and passwordKey would do nothing. Leave them empty
{{- end }}
{{- end }}
{{- end -}}

{{- /* Keys of Secrets, wherever values name one. */ -}}
{{- define "amqp-sidecar-lib.check.secretKeys" -}}
{{- range $path := list "broker.existingSecretKey" "broker.usernameKey" "broker.passwordKey" "broker.tls.caKey" "broker.tls.certKey" "broker.tls.keyKey" "sidecar.control.tokenKey" "sidecar.control.readTokenKey" "app.tokenSecret.key" "publish.tokenKey" "outbox.existingSecretKey" "outbox.tls.caKey" "outbox.tls.certKey" "outbox.tls.keyKey" "outbox.migrate.existingSecretKey" "tracing.headersSecret.key" -}}
{{- $value := $.v -}}
{{- range splitList "." $path -}}{{- $value = ternary (get ($value | default dict) .) nil (kindIs "map" $value) -}}{{- end -}}
{{- with $value | toString -}}
{{- if and $value (include "amqp-sidecar-lib.wrong.key" .) }}
- {{ $path }}: {{ quote . }} {{ include "amqp-sidecar-lib.wrong.key" . }}
{{- end }}
{{- end -}}
{{- end -}}
{{- if and .v.tracing.headersSecret.name (not .v.tracing.headersSecret.key) }}
- tracing.headersSecret.key: is empty. Name the key of {{ .v.tracing.headersSecret.name }} that holds the headers
{{- end }}
{{- end -}}

{{- define "amqp-sidecar-lib.check.tracing" -}}
{{- $t := .v.tracing -}}
{{- $endpoint := or (hasKey .env "OTEL_EXPORTER_OTLP_ENDPOINT") (hasKey .env "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") .v.extraEnvFrom -}}
{{- if and $t.enabled (not $endpoint) }}
- tracing.endpoint: is empty, so there is nowhere to send spans. Set a collector's OTLP/HTTP address, e.g. http://otel-collector:4318
{{- end }}
{{- $variable := ternary "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" "OTEL_EXPORTER_OTLP_ENDPOINT" (not (empty (get .env "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))) -}}
{{- with get .env $variable }}
{{- if contains "?" . }}
- {{ get $.at $variable }}: {{ quote . }} has a query. What it says goes into tracing.headersSecret; write e.g. http://otel-collector:4318
{{- else if include "amqp-sidecar-lib.wrong.http" . }}
- {{ get $.at $variable }}: {{ quote . }} {{ include "amqp-sidecar-lib.wrong.http" . }}. Write an http:// or https:// URL without user, e.g. http://otel-collector:4318
{{- end }}
{{- end }}
{{- with get .env "OTEL_TRACES_SAMPLER_ARG" }}
{{- if not (regexMatch "^(0([.][0-9]+)?|1([.]0+)?)$" .) }}
- {{ $.at.OTEL_TRACES_SAMPLER_ARG }}: {{ quote . }} is no share from 0 to 1, e.g. "0.1"
{{- end }}
{{- end }}
{{- end -}}
