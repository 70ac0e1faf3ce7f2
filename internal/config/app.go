package config

import "time"

// The values of SIDECAR_RESPONSE_DIALECT.
const (
	DialectOff  = "off"
	DialectDapr = "dapr"
)

// App is where messages are POSTed to, and how it answers.
type App struct {
	// Messages are POSTed to exactly this URL. `unix:///run/app.sock:/events` means the path `/events` over the Unix
	// socket `/run/app.sock`. Anything but this machine gets a warning: the sidecar is meant to sit beside its app.
	// Link-local addresses (cloud metadata services) are refused.
	URL string `env:"APP_URL" mask:"query" envDefault:"http://127.0.0.1:8080/" allowed:"'http://…', 'https://…' or 'unix:///path/to.sock:/http/path', without user, fragment, '..' and '//'"`

	// Time for one whole attempt, from connecting to the end of the answer. Together with `SIDECAR_RETRY_AFTER_MAX` or
	// `SIDECAR_REQUEUE_DELAY_MAX` at most 25 minutes: after 30 the broker takes an unsettled message away.
	Timeout time.Duration `env:"APP_TIMEOUT" envDefault:"30s" range:"1ms..20m"`

	// Sent to the app as `Authorization: Bearer …`.
	Token Secret `env:"APP_TOKEN" allowed:"visible ASCII characters, no spaces"`

	// Asked with GET before messages are taken and while the app is away: any 2xx means it is up. Unset: a connection
	// that opens is enough.
	HealthPath string `env:"APP_HEALTH_PATH" mask:"query" allowed:"a path starting with one '/', without fragment and '..'"`

	// Pause between two looks at an app that is away.
	HealthInterval time.Duration `env:"APP_HEALTH_INTERVAL" envDefault:"1s" range:"10ms..5m"`

	// Time for one look.
	HealthTimeout time.Duration `env:"APP_HEALTH_TIMEOUT" envDefault:"1s" range:"1ms..1m"`

	// `dapr`: the body of a 2xx may be what a Dapr subscriber answers. `{"status":"RETRY"}` retries, `"DROP"` parks,
	// `"SUCCESS"`, no status or no such JSON acks, any other status retries, and so does an object that does not end
	// within 64 KiB. `Amqp-Disposition` overrules it, and other statuses than 2xx mean what they always mean. `off`: bodies
	// say nothing.
	ResponseDialect string `env:"RESPONSE_DIALECT" envDefault:"off" oneof:"off|dapr"`
}

func (l *loader) checkApp() {
	const name, health = "SIDECAR_APP_URL", "SIDECAR_APP_HEALTH_PATH"
	a := l.cfg.App
	if a.HealthPath != "" {
		if err := checkHTTPPath(a.HealthPath); err != nil {
			l.reject(health, "%v", err)
		}
	}
	t, err := parseAppURL(a.URL)
	if err != nil {
		l.reject(name, "%v", err)
		return
	}
	if !t.local() {
		l.warn(name, "the app is not on this machine: messages leave it%s", unencrypted(t.scheme))
		if t.scheme == "http" && a.Token.IsSet() {
			l.warn("SIDECAR_APP_TOKEN", "goes over an unencrypted link")
		}
	}
	l.checkOwnPort(name, t)
}

func unencrypted(scheme string) string {
	if scheme == "http" {
		return ", unencrypted"
	}
	return ""
}

// checkOwnPort catches the sidecar POSTing to itself: its listener would answer 404 to every message.
func (l *loader) checkOwnPort(name string, t appTarget) {
	if t.scheme == schemeUnix || !t.local() {
		return
	}
	for _, own := range []struct{ name, addr string }{
		{"SIDECAR_ADMIN_ADDR", l.cfg.Listen.AdminAddr}, {"SIDECAR_CONTROL_ADDR", l.cfg.Listen.ControlAddr},
		{"SIDECAR_PUBLISH_ADDR", l.cfg.Publish.Addr},
	} {
		host, port, err := parseAddr(own.addr)
		if err == nil && port == t.port && (anyHost(host) || loopbackHost(host)) {
			l.reject(name, "is the sidecar's own %s: the app needs a port of its own", own.name)
		}
	}
}

// checkToken holds for tokens that travel in an Authorization header.
func checkToken(v string) error {
	for _, b := range []byte(v) {
		if b <= ' ' || b >= 0x7f {
			return errToken
		}
	}
	return nil
}
