package app

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/config"
	"sidecar/internal/topology"
)

// PresetValues are the values the topology preset has given to the variables that were not set, by variable. What the
// topology does not have is empty.
func PresetValues(cfg *config.Config) (map[string]string, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	o, err := topology.Fill(planOptions(cfg))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	v := map[string]string{
		"SIDECAR_PREFIX": o.Prefix, "SIDECAR_EXCHANGE": o.Exchange, "SIDECAR_EXCHANGE_TYPE": o.ExchangeType,
		"SIDECAR_QUEUE": o.Queue, "SIDECAR_QUEUE_TYPE": o.QueueType, "SIDECAR_RETRY_EXCHANGE": o.RetryExchange,
		"SIDECAR_RETRY_QUEUE": o.RetryQueue, "SIDECAR_DLX": o.DLX, "SIDECAR_DLQ": o.DLQ,
		"SIDECAR_MAX_RETRIES": strconv.Itoa(*o.MaxRetries), "SIDECAR_RETRY_DELAYS": delays(o.RetryDelays),
	}
	if o.RetryDelays == nil {
		v["SIDECAR_RETRY_DELAY"] = o.RetryDelay.String()
	}
	var bindings []string
	for _, b := range p.Bindings {
		if b.Queue == p.Queue {
			bindings = append(bindings, b.Exchange+":"+b.Key)
		}
	}
	v["SIDECAR_BINDINGS"] = strings.Join(bindings, ",")
	return v, nil
}

func delays(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = d.String()
	}
	return strings.Join(texts, ",")
}
