package config

import (
	"strings"
	"testing"
)

// TestBadValues is the list of bad configurations: each is refused with one line that names the variable. (What the tags
// range and oneof say is in rules_test.go, what is read from files in secret_test.go and tls_test.go, what a preset cannot
// do anything with in internal/app.)
func TestBadValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 300)
	for _, tc := range []struct{ env, says string }{
		// Service name.
		{"SIDECAR_SERVICE=Wms Cincout", "not a service name"},
		{"SIDECAR_SERVICE=größe", "not a service name"},
		{"SIDECAR_SERVICE=amq.foo", "reserved"},

		{"SIDECAR_CONSUME=off", "leaves nothing to do: set SIDECAR_PUBLISH_ADDR or SIDECAR_OUTBOX_DSN"},

		// Broker.
		{"SIDECAR_AMQP_URL=http://127.0.0.1/", "must start with amqp:// or amqps://"},
		{"SIDECAR_AMQP_URL=amqp://u:1/w@h/", "percent-encoded"}, // reads as host u, port 1, vhost w@h
		{"SIDECAR_AMQP_URL=amqp://u:p w@h/", "space"},
		{"SIDECAR_AMQP_URL=amqp://h/\n", "control character"},
		{"SIDECAR_AMQP_URL=amqp:///vhost", "no host"},
		{"SIDECAR_AMQP_URL=amqp://h:0/", "port"},
		{"SIDECAR_AMQP_URL=amqp://h$/", "invalid host"},
		{"SIDECAR_AMQP_URL=amqp://h/a/b", "vhost"},
		{"SIDECAR_AMQP_URL=amqp://h/?heartbeat=0", "query parameters"},
		{"SIDECAR_AMQP_URL=amqp://a,,amqp://b", "URL 2 of 3: is empty"},
		{"SIDECAR_AMQP_URL=amqp://a, amqp://a", "URL 2 of 2: is there twice"},
		{"SIDECAR_AMQP_USERNAME=a\x00b", "NUL"},
		{"SIDECAR_AMQP_TLS_SERVER_NAME=a b", "not a host name"},
		{"SIDECAR_MANAGEMENT_URL=rabbit:15672", "must start with http:// or https://"},
		{"SIDECAR_MANAGEMENT_URL=http://", "names no host"},
		{"SIDECAR_MANAGEMENT_URL=http://rabbit:0/", "port"},
		{"SIDECAR_MANAGEMENT_URL=http://u@rabbit/", "both a user and a password"},
		{"SIDECAR_MANAGEMENT_URL=http://rabbit/?x=1", "has a query"},
		{"SIDECAR_MANAGEMENT_URL=http://rabbit/../x", "with '.' or '..'"},

		// Window.
		{"SIDECAR_PREFETCH= 20", "not a whole number"},
		{"SIDECAR_RATE_LIMIT=100", "not a rate, such as 100/s, 30/m or 5/h; allowed: a whole number from 1 to 1000000"},
		{"SIDECAR_ORDER_BY=key", "not one of the words, and not a header; allowed: routing-key"},
		{"SIDECAR_ORDER_BY=header:", "not a header"},
		{"SIDECAR_ORDER_SCOPE=replica", "not used: there is no order, because SIDECAR_ORDER_BY is not set"},
		{"SIDECAR_PREFETCH=9", "at least SIDECAR_CONCURRENCY, which is 10"},
		{"SIDECAR_MAX_BODY=1.5MiB", "KiB, MiB or GiB"},
		{"SIDECAR_SPOOL_DIR=spool", "absolute path"},

		// Publishing.
		{"SIDECAR_PUBLISH_ADDR=127.0.0.1:9091", "same port as SIDECAR_CONTROL_ADDR"},
		{"SIDECAR_PUBLISH_ADDR=:9092", "needs SIDECAR_PUBLISH_TOKEN"},
		{"SIDECAR_PUBLISH_TOKEN=short", "shorter than 16"},
		{"SIDECAR_PUBLISH_EXCHANGES=orders=", "not name=value"},
		{"SIDECAR_PUBLISH_EXCHANGES=a=b,a=c", "\"a\" is there twice"},
		{"SIDECAR_PUBLISH_EXCHANGES=a/b=c", "not an alias"},
		{"SIDECAR_PUBLISH_EXCHANGES=a=" + long, "longer than 255 bytes"},
		{"SIDECAR_PUBLISH_ROUTING_KEYS=a,,b", "item 2 of the list is empty"},
		{"SIDECAR_PUBLISH_ROUTING_KEYS=" + long, "longer than 255 bytes"},

		// Outbox.
		{"SIDECAR_OUTBOX_TABLE=x; drop table", "not the name of a table"},
		{"SIDECAR_OUTBOX_COLUMNS=payload=body", "no column \"payload\""},
		{"SIDECAR_OUTBOX_COLUMNS=body=pay load", "not the name of a column"},
		{"SIDECAR_OUTBOX_COLUMNS=body=headers", "two columns would be \"headers\""},

		// Times.
		{"SIDECAR_APP_TIMEOUT=5", "not a duration"},
		{"SIDECAR_RETRY_DELAY=1500us", "whole number of milliseconds"},
		{"SIDECAR_RETRY_DELAYS=5s,2s", "ascending"},
		{"SIDECAR_RETRY_DELAYS=1s,,2s", "item 2 of the list is empty"},
		{"SIDECAR_RETRY_DELAYS=" + strings.TrimSuffix(manyDelays(33), ","), "33 delays"},

		// Answers.
		{"SIDECAR_PARK_ON_STATUS=400,200", "200 says that the app took the message"},
		{"SIDECAR_PARK_ON_STATUS=abc", `"abc" is not a status code`},
		{"SIDECAR_PARK_ON_STATUS=600", "never the status"},
		{"SIDECAR_PARK_ON_STATUS=400,400", "twice"},

		// App.
		{"SIDECAR_APP_URL=file:///etc/passwd", "must start with"},
		{"SIDECAR_APP_URL=http://127.0.0.1//host/x", "starting with '//'"},
		{"SIDECAR_APP_URL=http://127.0.0.1/a/../b", "'..'"},
		{"SIDECAR_APP_URL=http://127.0.0.1/a\r\nX: y", "percent-encoded"},
		{"SIDECAR_APP_URL=http://127.0.0.1/a%0D%0aX", "line break"},
		{"SIDECAR_APP_URL=http://127.0.0.1/a%zz", "not a URL"},
		{"SIDECAR_APP_URL=http://127.0.0.1/a#b", "fragment"},
		{"SIDECAR_APP_URL=http://me:hunter2@127.0.0.1/", "SIDECAR_APP_TOKEN"},
		{"SIDECAR_APP_URL=http://169.254.169.254/latest", "link-local"},
		{"SIDECAR_APP_URL=http://[::ffff:169.254.169.254]/", "link-local"},
		{"SIDECAR_APP_URL=http://2852039166/", "invalid host"}, // 169.254.169.254 to some resolvers
		{"SIDECAR_APP_URL=http:///x", "no host"},
		{"SIDECAR_APP_URL=http://127.0.0.1:0/", "port"},
		{"SIDECAR_APP_URL=unix://run/app.sock", "absolute path"},
		{"SIDECAR_APP_URL=unix:///a.sock:x", "must start with '/'"},
		{"SIDECAR_APP_URL=unix:///a.sock:/%zz", "not a path"},
		{"SIDECAR_APP_URL=unix:///a.sock?x=1", "socket path"},
		{"SIDECAR_APP_URL=unix:///" + strings.Repeat("s", 107), "107 bytes"},
		{"SIDECAR_APP_URL=http://127.0.0.1:9090/", "is the sidecar's own SIDECAR_ADMIN_ADDR"},
		{"SIDECAR_APP_URL=http://localhost:9091/", "is the sidecar's own SIDECAR_CONTROL_ADDR"},
		{"SIDECAR_APP_HEALTH_PATH=health", "must start with '/'"},
		{"SIDECAR_APP_HEALTH_PATH=//host/health", "starting with '//'"},
		{"SIDECAR_APP_HEALTH_PATH=/he alth", "percent-encoded"},
		{"SIDECAR_APP_TOKEN=a b", "space"},

		// Listeners.
		{"SIDECAR_CONTROL_ADDR=:9091", "needs SIDECAR_CONTROL_TOKEN"},
		{"SIDECAR_CONTROL_ADDR=127.0.0.1:9090", "same port as SIDECAR_ADMIN_ADDR"},
		{"SIDECAR_CONTROL_TOKEN=short", "shorter than 16"},
		{"SIDECAR_CONTROL_TOKEN=0123456789 abcdef", "space"},
		{"SIDECAR_CONTROL_READ_TOKEN=short", "shorter than 16"},
		{"SIDECAR_CONTROL_READ_TOKEN=0123456789abcdef", "needs SIDECAR_CONTROL_TOKEN"},
		{"SIDECAR_ADMIN_ADDR=9090", "is not host:port"},
		{"SIDECAR_ADMIN_ADDR=:http", "port outside"},
		{"SIDECAR_ADMIN_ADDR=a/b:80", "invalid host"},

		// Headers.
		{"SIDECAR_FORWARD_HEADERS=x-a,x-a", "twice"},
		{"SIDECAR_FORWARD_HEADERS=x-a,X-A", "upper and lower case"},
		{"SIDECAR_FORWARD_HEADERS=x y", "not a header name"},
		{"SIDECAR_PASSTHROUGH_HEADERS=x[a-z]", "not a header name"},

		// Topology.
		{"SIDECAR_QUEUE=" + long, "longer than 255"},
		{"SIDECAR_QUEUE=a\nb", "control character"},
		{"SIDECAR_QUEUE=a\xffb", "UTF-8"},
		{"SIDECAR_QUEUE= a", "space"},
		{"SIDECAR_DLQ=amq.dlq", "reserved"},
		{"SIDECAR_EXCHANGE=amq.mine", "reserved"},
		{"SIDECAR_BINDINGS=orders", "is not exchange:key"},
		{"SIDECAR_BINDINGS=a:b,a:b", "twice"},
		{"SIDECAR_BINDINGS=a:" + long, "longer than 255"},

		// Names that are not ours.
		{"SIDECAR_=x", "unknown name"},
		{"SIDECAR_TLS_INSECURE_SKIP_VERIFY=true", "unknown name"},
	} {
		name, _, _ := strings.Cut(tc.env, "=")
		refuseSaying(t, tc.says, name, tc.env)
	}
}

func manyDelays(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("1", i/9+1) + string(rune('1'+i%9)) + "s,")
	}
	return b.String()
}

// TestBadCombinations are settings that are fine each on its own.
func TestBadCombinations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		variable, says string
		env            []string
	}{
		{"SIDECAR_PREFETCH", "at least SIDECAR_CONCURRENCY, which is 50", []string{"SIDECAR_CONCURRENCY=50", "SIDECAR_PREFETCH=49"}},
		{"SIDECAR_BATCH_SIZE", "combined with SIDECAR_ORDER_BY=queue", []string{"SIDECAR_BATCH_SIZE=2", "SIDECAR_ORDER_BY=queue"}},
		{"SIDECAR_BATCH_SIZE", "SIDECAR_RESPONSE_DIALECT=dapr", []string{"SIDECAR_BATCH_SIZE=2", "SIDECAR_RESPONSE_DIALECT=dapr"}},
		{"SIDECAR_BATCH_SIZE", "a POST of 1000 messages may need 10MiB, and SIDECAR_MEMORY is 8MiB", []string{"SIDECAR_BATCH_SIZE=1000", "SIDECAR_MEMORY=8MiB", "SIDECAR_MAX_BODY=1MiB"}},
		{"SIDECAR_RETRY_AFTER_MAX", "not be more than 10m together with SIDECAR_ORDER_BY", []string{"SIDECAR_ORDER_BY=queue", "SIDECAR_RETRY_AFTER_MAX=11m"}},
		{"SIDECAR_APP_TIMEOUT", "not be more than 20m: after 30 minutes the broker takes", []string{"SIDECAR_APP_TIMEOUT=20m1ms"}},
		{"SIDECAR_APP_TIMEOUT", "SIDECAR_TOPOLOGY=native or SIDECAR_QUEUE_TYPE=quorum, without", []string{"SIDECAR_APP_TIMEOUT=1h", "SIDECAR_QUEUE_TYPE=classic"}},
		{"SIDECAR_APP_TIMEOUT", "without SIDECAR_ORDER_BY", []string{"SIDECAR_APP_TIMEOUT=1h", "SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_ORDER_BY=queue"}},
		{"SIDECAR_RETRY_AFTER_MAX", "not be more than 25m", []string{"SIDECAR_APP_TIMEOUT=20m", "SIDECAR_RETRY_AFTER_MAX=6m"}},
		{"SIDECAR_REQUEUE_DELAY_MAX", "not be more than 25m", []string{"SIDECAR_APP_TIMEOUT=20m", "SIDECAR_REQUEUE_DELAY_MAX=6m"}},
		{"SIDECAR_RETRY_DELAY", "cannot be combined with", []string{"SIDECAR_RETRY_DELAY=1s", "SIDECAR_RETRY_DELAYS=1s,2s"}},
		{"SIDECAR_AMQP_TLS_SERVER_NAME", "needs an amqps:// URL", []string{"SIDECAR_AMQP_TLS_SERVER_NAME=rabbit"}},
		{
			"SIDECAR_AMQP_TLS_SERVER_NAME", "needs an amqps:// URL",
			[]string{"SIDECAR_AMQP_TLS_SERVER_NAME=rabbit", "SIDECAR_MANAGEMENT_URL=https://rabbit"},
		},
		{"SIDECAR_AMQP_PASSWORD", "set together with SIDECAR_AMQP_PASSWORD_FILE", []string{"SIDECAR_AMQP_PASSWORD=x", "SIDECAR_AMQP_PASSWORD_FILE=/dev/null"}},
		{"SIDECAR_CONTROL_READ_TOKEN", "same as SIDECAR_CONTROL_TOKEN", []string{"SIDECAR_CONTROL_TOKEN=0123456789abcdef", "SIDECAR_CONTROL_READ_TOKEN=0123456789abcdef"}},
		{"SIDECAR_APP_URL", "SIDECAR_ADMIN_ADDR", []string{"SIDECAR_APP_URL=http://127.0.0.1", "SIDECAR_ADMIN_ADDR=127.0.0.1:80"}},
	} {
		refuseSaying(t, tc.says, tc.variable, tc.env...)
	}
	load(t, "SIDECAR_APP_URL=http://10.0.0.1:9090/") // another machine's port
	load(t, "SIDECAR_APP_URL=http://127.0.0.1:9090/", "SIDECAR_ADMIN_ADDR=10.0.0.5:9090")
}

func TestMemoryBudget(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	base := []string{"SIDECAR_SERVICE=a-b"}
	for _, tc := range []struct {
		limit    int64
		env      []string
		want     Size
		refused  string
		warnings int
	}{
		{0, []string{"SIDECAR_PREFETCH=65535"}, 256 * mib, "", 0},
		{128 * mib, nil, 96 * mib, "", 0},
		{128 * mib, []string{"SIDECAR_PREFETCH=1000"}, 96 * mib, "", 0}, // a count, and no bound of memory
		{128 * mib, []string{"SIDECAR_MEMORY=40MiB"}, 40 * mib, "", 0},
		{128 * mib, []string{"SIDECAR_MEMORY=97MiB"}, 97 * mib, "", 1},
		{128 * mib, []string{"SIDECAR_MEMORY=128MiB"}, 0, "SIDECAR_MEMORY", 0},
		{0, []string{"SIDECAR_MEMORY=1MiB"}, 0, "SIDECAR_MEMORY", 0},
		{128 * mib, []string{"SIDECAR_MAX_BODY=96MiB"}, 96 * mib, "", 0},
		{128 * mib, []string{"SIDECAR_MAX_BODY=97MiB"}, 0, "SIDECAR_MAX_BODY", 0},
		{0, []string{"SIDECAR_MAX_BODY=512MiB"}, 0, "SIDECAR_MAX_BODY", 0},
		{0, []string{"SIDECAR_MAX_BODY=512MiB", "SIDECAR_MEMORY=512MiB"}, 512 * mib, "", 0},
		{128 * mib, []string{"SIDECAR_PUBLISH_ADDR=127.0.0.1:9092", "SIDECAR_MAX_BODY=24MiB"}, 96 * mib, "", 0},
		{128 * mib, []string{"SIDECAR_PUBLISH_ADDR=127.0.0.1:9092", "SIDECAR_MAX_BODY=25MiB"}, 96 * mib, "", 1},
		{1 * mib, []string{"SIDECAR_MAX_BODY=1KiB"}, 4 * mib, "", 0},
	} {
		c, err := Load(append(tc.env, base...), tc.limit)
		if tc.refused != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.refused) {
				t.Errorf("%q: got %v, want %s refused", tc.env, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.env, err)
			continue
		}
		if c.Window.Memory != tc.want {
			t.Errorf("%q: SIDECAR_MEMORY is %v, want %v", tc.env, c.Window.Memory, tc.want)
		}
		if w := c.Warnings(); len(w) != tc.warnings {
			t.Errorf("%q: warnings %q", tc.env, w)
		}
	}
}

func TestValuesThatLookBadAndAreNot(t *testing.T) {
	t.Parallel()
	for _, env := range []string{
		"SIDECAR_AMQP_URL=amqp://u:p@ss@h/", "SIDECAR_AMQP_URL=amqp://h", "SIDECAR_AMQP_URL=amqp://h/", "SIDECAR_AMQP_URL=amqp://h/%2f",
		"SIDECAR_AMQP_URL=amqps://u@[::1]:5671/v-host_1", "SIDECAR_AMQP_PASSWORD=p@:/?#[]% ü", "SIDECAR_SERVICE=noprefix", "SIDECAR_SERVICE=a-",
		"SIDECAR_SERVICE=a-" + strings.Repeat("n", 236), "SIDECAR_QUEUE=" + strings.Repeat("q", 255), "SIDECAR_MAX_RETRIES=0",
		"SIDECAR_RETRY_DELAY=1193h2m47.295s", "SIDECAR_SHUTDOWN_GRACE=0s", "SIDECAR_MAX_BODY=1048576", "SIDECAR_PREFETCH=10",
		"SIDECAR_APP_TIMEOUT=20m", "SIDECAR_CONTROL_TOKEN=0123456789abcdef", "SIDECAR_ADMIN_ADDR=localhost:9090", "SIDECAR_FORWARD_HEADERS=x-*",
		"SIDECAR_PASSTHROUGH_HEADERS=x-tenant-*,idempotency-key", "SIDECAR_DEAD_LETTER=enabled", "SIDECAR_FORWARD_HEADERS=*,date,user-agent",
		"SIDECAR_SERVICE=w-" + strings.Repeat("n", 236), "SIDECAR_MANAGEMENT_URL=http://rabbit",
		"SIDECAR_MANAGEMENT_URL=https://u:p@[::1]:15671/rabbit/", "SIDECAR_MANAGEMENT_URL=http://u:p%40%2f@h:1/",
	} {
		load(t, env)
	}
}
