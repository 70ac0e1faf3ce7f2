package topology

import (
	"strconv"
	"strings"
	"time"
)

// Values are the options as the configuration writes them, by variable. What is left open is "".
func (o *Options) Values() map[string]string {
	v := map[string]string{
		"SIDECAR_TOPOLOGY": o.Preset, "SIDECAR_SERVICE": o.Service, "SIDECAR_PREFIX": o.Prefix,
		"SIDECAR_EXCHANGE": o.Exchange, "SIDECAR_EXCHANGE_TYPE": o.ExchangeType,
		"SIDECAR_QUEUE": o.Queue, "SIDECAR_QUEUE_TYPE": o.QueueType,
		"SIDECAR_RETRY_EXCHANGE": o.RetryExchange, "SIDECAR_RETRY_QUEUE": o.RetryQueue,
		"SIDECAR_DLX": o.DLX, "SIDECAR_DLQ": o.DLQ,
		"SIDECAR_RETRY_DELAY": durations(o.RetryDelay), "SIDECAR_RETRY_DELAYS": durations(o.RetryDelays...),
		"SIDECAR_MESSAGE_TTL": durations(o.MessageTTL),
	}
	if o.RetryDelays != nil && len(o.RetryDelays) == 0 {
		v["SIDECAR_RETRY_DELAYS"] = "none"
	}
	if o.MaxRetries != nil {
		v["SIDECAR_MAX_RETRIES"] = strconv.Itoa(*o.MaxRetries)
	}
	if o.NoDeadLetter {
		v["SIDECAR_DEAD_LETTER"] = "disabled"
	}
	bindings := make([]string, len(o.Bindings))
	for i, b := range o.Bindings {
		bindings[i] = b.Exchange + ":" + b.Key
	}
	v["SIDECAR_BINDINGS"] = strings.Join(bindings, ",")
	return v
}

func durations(list ...time.Duration) string {
	var texts []string
	for _, d := range list {
		if d != 0 {
			texts = append(texts, d.String())
		}
	}
	return strings.Join(texts, ",")
}
