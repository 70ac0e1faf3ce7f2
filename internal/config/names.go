package config

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name AMQP can carry, in bytes. The client library answers a longer one by closing the whole
// connection, so no name may get as far as that.
const maxName = 255

// standard are the exchanges every vhost has.
var standard = []string{"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"}

// checkShortString holds for everything AMQP sends as a short string: names and routing keys.
func checkShortString(v string) error {
	switch {
	case len(v) > maxName:
		return errors.New("is longer than 255 bytes")
	case !utf8.ValidString(v):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(v, unicode.IsControl):
		return errors.New("holds a control character")
	}
	return nil
}

// checkName checks the name of something the sidecar declares. Only the main exchange may be one of the broker's own.
func (l *loader) checkName(name, value string) {
	if value == "" {
		return
	}
	if err := checkShortString(value); err != nil {
		l.reject(name, "%v", err)
		return
	}
	if strings.TrimSpace(value) != value {
		l.reject(name, "starts or ends with a space")
		return
	}
	if name == "SIDECAR_EXCHANGE" && slices.Contains(standard, value) {
		return
	}
	if strings.HasPrefix(value, "amq.") {
		l.reject(name, "names that start with amq. are reserved by the broker")
	}
}
