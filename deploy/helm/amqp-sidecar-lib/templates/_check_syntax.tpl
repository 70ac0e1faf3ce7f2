{{- /* Addresses, paths and references as those read them who get them, internal/config first of all. A template
amqp-sidecar-lib.wrong.X gives what is wrong with its text, as the rest of a sentence, and nothing when it is right. */ -}}

{{- /* "yes" for an IP address and for a name. A name whose last label is a number is refused, as resolvers read an address in it. */ -}}
{{- define "amqp-sidecar-lib.isHost" -}}
{{- $last := splitList "." (trimSuffix "." .) | last -}}
{{- $four := "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" -}}
{{- $colons := regexFindAll ":" . -1 | len -}}
{{- if regexMatch (printf "^%s$" $four) . -}}
yes
{{- else if contains ":" . -}}
{{- if and (regexMatch (printf "^([0-9A-Fa-f]{0,4}:){2,7}([0-9A-Fa-f]{0,4}|%s)$" $four) .) (not (contains ":::" .)) (le (regexFindAll "::" . -1 | len) 1) (or (contains "::" .) (eq $colons 7) (and (contains "." .) (eq $colons 6))) -}}
yes
{{- end -}}
{{- else if and (le (len .) 255) (regexMatch "^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?$" .) (not (contains ".." .)) (not (regexMatch "^([1-9][0-9]*|0[xX][0-9A-Fa-f]+|0[oO]?[0-7]*|0[bB][01]+)$" $last)) -}}
yes
{{- end -}}
{{- end -}}

{{- /* host or host:port. */ -}}
{{- define "amqp-sidecar-lib.wrong.authority" -}}
{{- $host := regexFind "^(\\[[^\\[\\]]+\\]|[^:\\[\\]]*)" . -}}
{{- $port := trimPrefix $host . -}}
{{- if regexMatch "^[^\\[\\]]*:[^\\[\\]]*:" . -}}
has an IPv6 address without brackets, or more than one port: write [fd00::1] or [fd00::1]:5671
{{- else if or (regexMatch "[\\[\\]]" $port) (and $port (not (hasPrefix ":" $port))) -}}
has an invalid host: brackets stand around a whole IPv6 address
{{- else if not $host -}}
names no host
{{- else if not (include "amqp-sidecar-lib.isHost" (trimAll "[]" $host)) -}}
has an invalid host: it is an IP address or a name of letters, digits, - and single dots
{{- else if and $port (not (include "amqp-sidecar-lib.isPort" (trimPrefix ":" $port))) -}}
has a port that is none from 1 to 65535
{{- end -}}
{{- end -}}

{{- define "amqp-sidecar-lib.isPort" -}}
{{- if regexMatch "^0*[0-9]{1,5}$" . -}}
{{- $n := regexReplaceAll "^0+" . "" | int -}}
{{- if and (gt $n 0) (le $n 65535) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- /* One URL of a broker, from :// on. */ -}}
{{- define "amqp-sidecar-lib.wrong.amqp" -}}
{{- $rest := regexReplaceAll "^amqps?://" . "" -}}
{{- $authority := regexFind "^[^/]*" $rest -}}
{{- $vhost := trimPrefix $authority $rest | trimPrefix "/" -}}
{{- $user := regexFind "^.*@" $authority -}}
{{- if or (regexMatch "[/@]" $vhost) (not (regexMatch "^([A-Za-z0-9._:~!$&'()*+;=%-]*@)?$" $user)) -}}
cannot be read. Reserved characters in user and password are percent-encoded (/ is %2F, : is %3A), and so is a slash in the vhost
{{- else if regexMatch "%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)" (printf "%s/%s" $user $vhost) -}}
has a % that encodes nothing. Write %25 for one
{{- else -}}
{{- include "amqp-sidecar-lib.wrong.authority" (trimPrefix $user $authority) -}}
{{- end -}}
{{- end -}}

{{- /* What could end a request line, or would have to be rewritten to stand in one. */ -}}
{{- define "amqp-sidecar-lib.wrong.characters" -}}
{{- if contains "#" . -}}
has a fragment (#), which is never sent
{{- else if regexMatch "[^!-~]|[\"<>\\\\^`{|}]" . -}}
has a character that has to be percent-encoded (a space is %20, | is %7C)
{{- else if regexMatch "(?i)%(00|0a|0d)" . -}}
has an encoded NUL or line break in it
{{- end -}}
{{- end -}}

{{- /* The path of a request, with a query or without. */ -}}
{{- define "amqp-sidecar-lib.wrong.path" -}}
{{- $path := regexFind "^[^?]*" . -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.characters" . -}}
{{- if $wrong -}}
{{- $wrong -}}
{{- else if not (hasPrefix "/" .) -}}
does not begin with /
{{- else if hasPrefix "//" $path -}}
has a path that begins with //, which reads as a host
{{- else if regexMatch "(?i)/([.]|%2e){1,2}(/|$)" $path -}}
has . or .. in its path
{{- else if regexMatch "%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)" $path -}}
has a % that encodes nothing. Write %25 for one
{{- end -}}
{{- end -}}

{{- /* http:// or https:// URL. */ -}}
{{- define "amqp-sidecar-lib.wrong.http" -}}
{{- $rest := regexReplaceAll "^https?://" . "" -}}
{{- $authority := regexFind "^[^/?]*" $rest -}}
{{- $path := trimPrefix $authority $rest -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.characters" . -}}
{{- if $wrong -}}
{{- $wrong -}}
{{- else if not (regexMatch "^https?://" .) -}}
does not begin with http:// or https://
{{- else if contains "@" $authority -}}
has a user
{{- else -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.authority" $authority -}}
{{- if $wrong -}}
{{- $wrong -}}
{{- else if hasPrefix "/" $path -}}
{{- include "amqp-sidecar-lib.wrong.path" $path -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The app's URL. */ -}}
{{- define "amqp-sidecar-lib.wrong.app" -}}
{{- $rest := trimPrefix "unix://" . -}}
{{- $file := regexFind "^[^:]*" $rest -}}
{{- if not (hasPrefix "unix://" .) -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.http" . -}}
{{- if $wrong -}}
{{- $wrong -}}
{{- else if regexMatch "^https?://(169[.]254[.]|\\[(?i:fe[89ab][0-9a-f]:))" . -}}
is a link-local address, where clouds hand out credentials
{{- end -}}
{{- else if not (regexMatch "^/." $file) -}}
gives the socket by no absolute path
{{- else if gt (len $file) 107 -}}
has a socket path longer than 107 bytes
{{- else if regexMatch "[?%]" $file -}}
has ? or % in the socket's path, which is taken as it is
{{- else -}}
{{- $wrong := include "amqp-sidecar-lib.wrong.characters" $file -}}
{{- if $wrong -}}
{{- $wrong -}}
{{- else if contains ":" $rest -}}
{{- include "amqp-sidecar-lib.wrong.path" (trimPrefix (printf "%s:" $file) $rest) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* An address to listen on, in a pod whose own address nobody knows before. */ -}}
{{- define "amqp-sidecar-lib.wrong.listen" -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" -}}
{{- if not (regexMatch "^(\\[[^\\[\\]]*\\]|[^:\\[\\]]*):[0-9]+$" .) -}}
is no address
{{- else if and (not (hasSuffix ":0" .)) (not (include "amqp-sidecar-lib.isPort" (regexFind "[0-9]+$" .))) -}}
has a port that is none from 0 to 65535
{{- else if and $host (not (regexMatch "^(?i:localhost|127[.][0-9.]+|\\[::1\\]|0[.]0[.]0[.]0|\\[::\\])$" $host)) -}}
is bound to an address that no pod is known to have
{{- else if and (hasPrefix "127." $host) (not (include "amqp-sidecar-lib.isHost" $host)) -}}
has an invalid host
{{- end -}}
{{- end -}}

{{- /* The key of a Secret, which is a file's name where it is mounted. */ -}}
{{- define "amqp-sidecar-lib.wrong.key" -}}
{{- if or (not (regexMatch "^[-._a-zA-Z0-9]{1,253}$" .)) (hasPrefix ".." .) (eq "." .) -}}
is no key of a Secret: letters, digits, -, _ and ., not beginning with ..
{{- end -}}
{{- end -}}

{{- /* An image with its registry, tag and digest, as a container runtime reads it. */ -}}
{{- define "amqp-sidecar-lib.wrong.image" -}}
{{- $registry := "((localhost|[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+)(:[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|\\[[0-9A-Fa-f:]+\\](:[0-9]+)?)" -}}
{{- $path := "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*" -}}
{{- if contains "://" . -}}
begins with a scheme. Leave {{ regexFind "^.*://" . }} out
{{- else if regexMatch "[[:space:]]" . -}}
has a space in it
{{- else if not (regexMatch (printf "^(%s/)?%s(/%s)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-f]{32,})?$" $registry $path $path) .) -}}
is no reference to an image. It looks like registry.example.com/team/name:tag, in small letters but for the tag
{{- end -}}
{{- end -}}
