package dispatch

import (
	"slices"
	"strings"

	"sidecar/internal/http1"
)

// Plain HTTP headers have a meaning for servers, proxies and frameworks. Whatever the configuration passes through,
// these names are never taken from a message: the ones that frame or route a request, that carry credentials, that
// identify the client, and the prefixes of the sidecar's own headers.
var (
	deniedNames = strings.Fields(`
		host connection keep-alive te trailer trailers transfer-encoding upgrade expect http2-settings
		authorization www-authenticate cookie cookie2 set-cookie set-cookie2
		forwarded via x-real-ip true-client-ip cf-connecting-ip fastly-client-ip x-client-ip x-cluster-client-ip
		x-remote-addr x-remote-user remote-user x-original-url x-rewrite-url x-host
		x-http-method x-http-method-override x-method-override
		user-agent accept-encoding date range traceparent tracestate baggage`)
	deniedPrefixes = []string{"content-", "proxy-", "x-forwarded", "x-original-", "x-envoy-", "sec-", "if-", "amqp-",
		"ce-"}
)

// deniedBare reports whether a message header may never become the bare HTTP header name. It is asked about the mapped
// name: WSGI and CGI read X_Forwarded_For and X-Forwarded-For as the same variable.
func deniedBare(name []byte) bool {
	return slices.ContainsFunc(deniedPrefixes, func(p string) bool { return http1.FoldPrefix(name, p) }) ||
		slices.Contains(deniedNames, strings.ToLower(string(name)))
}
