package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// serviceLink is what Kubernetes injects for a Service called "sidecar" or "sidecar-…".
	serviceLink = regexp.MustCompile(`^SIDECAR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_.*)$`)
	linkedPort  = regexp.MustCompile(`_SERVICE_PORT(_.*)?$|_PORT_\d+_(TCP|UDP|SCTP)_PORT$`)
)

// checkUnknown refuses unknown names with our prefix: a mistyped name would otherwise be a setting without effect. The
// value is not shown, because the mistyped name may be that of a secret.
func (l *loader) checkUnknown() {
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		meanings := 0
		for _, known := range l.order {
			if known == name {
				meanings++
			}
		}
		consequence := strings.HasPrefix(name, ownPrefix) && !l.ok(subscriptions)
		if !strings.HasPrefix(name, prefix) || meanings == 1 || consequence {
			continue
		}
		if !serviceLink.MatchString(name) || !injected(name, l.env[name]) { // SIDECAR_APP_PORT=3000 has no tcp:// before it
			l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool { return meanings > 1 && p.Variable == name })
			l.problems = append(l.problems, Problem{Variable: shownName(name), Reason: l.unknown(name)})
		}
	}
}

// injected reports whether the value has the form of those that Kubernetes injects.
func injected(name, value string) bool {
	switch {
	case strings.HasSuffix(name, "_SERVICE_HOST"), strings.HasSuffix(name, "_ADDR"):
		return validHost(value)
	case linkedPort.MatchString(name):
		return checkPort(value) == nil
	case strings.HasSuffix(name, "_PROTO"):
		return value == "tcp" || value == "udp" || value == "sctp"
	}
	return strings.Contains(value, "://")
}

// shownName keeps a name with strange characters on one line.
func shownName(name string) string {
	if q := shown(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// meant says what to set in place of names that are usual elsewhere and not near ours: SIDECAR_ and a name that the
// pattern matches as a whole.
var meant = []struct{ pattern, instead string }{
	{`(RABBIT(MQ)?|BROKER|AMQPS?|MQ)(_(URLS?|URI|DSN|HOST(NAME)?|PORT|V_?HOST|ADDR(ESS)?|CONNECTION(_STRING)?))?|V_?HOST`,
		"SIDECAR_AMQP_URL=amqp://user:password@host:5672/vhost"},
	{`(RABBIT(MQ)?|BROKER|AMQPS?|MQ)_(USER(NAME)?|LOGIN)`, "SIDECAR_AMQP_USERNAME"},
	{`(RABBIT(MQ)?|BROKER|AMQPS?|MQ)_(PASS(WORD|WD)?|SECRET)`, "SIDECAR_AMQP_PASSWORD"},
	{`(DATABASE|DB|POSTGRES(QL)?|PG|OUTBOX)(_(URL|URI|DSN|HOST|PORT|DATABASE|DB|CONNECTION(_STRING)?))*`, "SIDECAR_OUTBOX_DSN"},
	{`(APP|TARGET|UPSTREAM|SERVICE|HTTP|WEBHOOK)_(HOST|ADDR(ESS)?|ENDPOINT|PORT)|PORT|(TARGET|UPSTREAM|WEBHOOK)?_?UR[LI]`,
		"SIDECAR_APP_URL=http://127.0.0.1:8080/path for the app, SIDECAR_ADMIN_ADDR for the sidecar's own port"},
	{`(METRICS|HEALTH|ADMIN)_(PORT|HOST)`, "SIDECAR_ADMIN_ADDR=:9090"},
	{`PUBLISH_(PORT|HOST|URL)`, "SIDECAR_PUBLISH_ADDR=127.0.0.1:9092"},
	{`(MAX_)?ATTEMPTS`, "SIDECAR_MAX_RETRIES, which does not count the first attempt"},
	{`WORKERS|THREADS|PARALLEL(ISM)?|MAX_?CONCURRENT`, "SIDECAR_CONCURRENCY"},
	{`ROUTING_KEYS?|BINDING_KEYS?|TOPICS?`, "SIDECAR_BINDINGS=exchange:key"},
	{`DEAD_?LETTER_(QUEUE|EXCHANGE)(_NAME)?`, "SIDECAR_DLQ and SIDECAR_DLX"},
	{`DEBUG|VERBOSE`, "SIDECAR_LOG_LEVEL=debug"},
}

// gone are the variables that were removed in this release, and what to do instead.
var gone = map[string]string{
	"CRASH_LIMIT": "a message that kills the app is parked after SIDECAR_MAX_RETRIES; the delivery limit of " +
		"SIDECAR_TOPOLOGY=native ends what kills the sidecar",
	"CRASH_DIR":            "nothing is written there any more",
	"PARTITIONS":           "use SIDECAR_ORDER_BY with one queue; RabbitMQ gives all partitions to the first replica",
	"AMQP_HEARTBEAT":       "it is 10s, or what the broker's setting heartbeat says if that is less",
	"AMQP_SASL":            "a client certificate in SIDECAR_AMQP_TLS_CERT_FILE without user and password means external",
	"APP_HEALTH_TIMEOUT":   "a probe may take SIDECAR_APP_HEALTH_INTERVAL, and at least 1s",
	"BATCH_BYTES":          "it is 1MiB, at most SIDECAR_MAX_BODY; SIDECAR_BATCH_SIZE bounds the messages",
	"MAX_RATE":             "set SIDECAR_RATE_LIMIT for each subscription",
	"OUTBOX_BATCH":         "it is 500",
	"OUTBOX_EXCHANGE":      "rows name their exchange; default=EXCHANGE in SIDECAR_PUBLISH_EXCHANGES is for others",
	"OUTBOX_MAX_ATTEMPTS":  "it is 10",
	"PUBLISH_MAX_BODY":     "SIDECAR_MAX_BODY counts for what the app publishes, too",
	"PUBLISH_MAX_INFLIGHT": "it is 256; SIDECAR_MEMORY bounds the bytes",
	"REQUEUE_DELAY_MIN":    "it is a fifth of SIDECAR_REQUEUE_DELAY_MAX, at least 250ms",
}

// suggestion names what is probably meant, or the nearest known name.
func (l *loader) suggestion(name string) string {
	short := strings.TrimSuffix(strings.ToUpper(name[len(prefix):]), fileSuffix)
	for _, m := range meant {
		if regexp.MustCompile(`^(?:` + m.pattern + `)$`).MatchString(short) {
			return "set " + m.instead
		}
	}
	var known []string
	for _, k := range l.order {
		if short, ours := strings.CutPrefix(k, prefix); ours {
			known = append(known, short)
		}
	}
	if nearest := Nearest(strings.ToUpper(name[len(prefix):]), known); nearest != "" {
		return "the nearest known name is " + prefix + nearest
	}
	return "docs/configuration.md lists the known names"
}

// Nearest returns the known name whose difference from name is the smallest share of the longer one; "" if it is more
// than half of that, rounded up, for each. With that half byte more both must begin alike: --yes is not --as.
func Nearest(name string, known []string) (nearest string) {
	least := 1.0
	for _, k := range known {
		d, longer := difference(name, k), max(len(name), len(k))
		near := 2*d <= longer || 2*d == longer+1 && strings.HasPrefix(k, name[:min(1, len(name))])
		if share := float64(d) / float64(longer); share < least && near {
			least, nearest = share, k
		}
	}
	return nearest
}

// difference counts the bytes of the longer text that are between a beginning and an end that both texts have.
func difference(a, b string) int {
	both := min(len(a), len(b))
	start, end := 0, 0
	for start < both && a[start] == b[start] {
		start++
	}
	for end < both-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return max(len(a), len(b)) - start - end
}
