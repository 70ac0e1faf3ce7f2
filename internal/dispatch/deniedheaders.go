package dispatch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sidecar/internal/http1"
)

// Plain HTTP headers have a meaning for servers, proxies and frameworks. Whatever the configuration passes through,
// these names are never taken from a message: the ones that frame or route a request, that carry credentials, that
// identify the client, and the prefixes of the sidecar's own headers. Of names with a prefix there are examples, for
// patterns.
var (
	deniedNames = strings.Fields(`
		host content-length content-type x-forwarded-for connection keep-alive te trailer trailers transfer-encoding upgrade
		expect http2-settings
		authorization proxy-authorization www-authenticate cookie cookie2 set-cookie set-cookie2
		forwarded via x-real-ip true-client-ip cf-connecting-ip fastly-client-ip x-client-ip x-cluster-client-ip
		x-remote-addr x-remote-user remote-user x-original-url x-envoy-original-path x-rewrite-url x-host
		x-http-method x-http-method-override x-method-override
		user-agent accept-encoding date range if-match sec-fetch-site amqp-queue ce-id traceparent tracestate baggage`)
	deniedPrefixes = []string{"content-", "proxy-", "x-forwarded", "x-original-", "x-envoy-", "sec-", "if-", "amqp-",
		"ce-"}
)

// deniedBare reports whether a message header may never become the bare HTTP header name. It is asked about the mapped
// name: WSGI and CGI read X_Forwarded_For and X-Forwarded-For as the same variable.
func deniedBare(name []byte) bool {
	return slices.ContainsFunc(deniedPrefixes, func(p string) bool { return http1.FoldPrefix(name, p) }) ||
		slices.Contains(deniedNames, strings.ToLower(string(name)))
}

// CheckPassthrough says of each pattern of Options.Passthrough that a message could set a denied header by it.
func CheckPassthrough(patterns []string) (problems []string) {
	for _, p := range patterns {
		if h := wouldSet(p); h != "" {
			problems = append(problems, fmt.Sprintf("%q would let a message set the header %s", p, h))
		}
	}
	return problems
}

// wouldSet returns the first denied header that the pattern matches as the names are mapped, "" if none. A trace
// context is not one: it does not come from the header table.
func wouldSet(pattern string) string {
	pattern = strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(pattern))
	for _, prefix := range deniedPrefixes {
		if strings.HasPrefix(pattern, prefix) {
			return prefix + "…"
		}
	}
	for _, h := range deniedNames {
		if ok, _ := path.Match(pattern, h); ok && !isTrace(h) {
			return h
		}
	}
	return ""
}
