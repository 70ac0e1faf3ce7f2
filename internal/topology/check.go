package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	maxRetriesLimit = 1_000_000
	maxTTL          = (1<<32 - 1) * time.Millisecond // what a broker's timer takes
)

var exchangeTypes = []string{"fanout", "direct", "topic", "headers"}

// check refuses options that no preset, or not this one, can do anything with.
func (o *Options) check() error {
	b := blueprints[o.Preset]
	if b == nil {
		return fmt.Errorf("SIDECAR_TOPOLOGY=%s is not a topology: use %s", o.Preset,
			strings.Join(slices.Sorted(maps.Keys(blueprints)), ", "))
	}
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	switch {
	case o.Service == "":
		refuse(true, "SIDECAR_SERVICE is required")
	case !serviceName.MatchString(o.Service):
		refuse(true, "SIDECAR_SERVICE=%q: only letters, digits, '.', '_' and '-', not beginning with '-'", o.Service)
	case strings.HasPrefix(o.Service, "amq."):
		refuse(true, "SIDECAR_SERVICE=%q: names that begin with amq. are the broker's", o.Service)
	case strings.Contains(b.queue, "{rest}") && o.Queue == "" && restOf(o.Service) == "":
		refuse(true, "SIDECAR_SERVICE=%q: %s names the queue after what follows the first hyphen, and nothing does", o.Service, o.Preset)
	}
	refuse(o.QueueType != "" && o.QueueType != typeClassic && o.QueueType != typeQuorum,
		"SIDECAR_QUEUE_TYPE=%q: classic or quorum", o.QueueType)
	refuse(o.ExchangeType != "" && !slices.Contains(exchangeTypes, o.ExchangeType),
		"SIDECAR_EXCHANGE_TYPE=%q: %s", o.ExchangeType, strings.Join(exchangeTypes, ", "))
	refuse(o.Queue == "" && b.queue == "", "SIDECAR_QUEUE is required with SIDECAR_TOPOLOGY=%s", o.Preset)
	refuse(len(o.Bindings) == 0 && b.bindingKey == "", "SIDECAR_BINDINGS is required with SIDECAR_TOPOLOGY=%s", o.Preset)
	refuse(len(o.Bindings) == 0 && b.bindingKey != "" && o.ExchangeType == "direct",
		"SIDECAR_EXCHANGE_TYPE=direct needs SIDECAR_BINDINGS: a direct exchange routes by key")
	refuse(o.MessageTTL != 0 && !b.mayExpire, "SIDECAR_MESSAGE_TTL: only with SIDECAR_TOPOLOGY=%s", PresetDeadLetter)
	refuse(o.NoDeadLetter && !b.mayDiscard, "SIDECAR_DEAD_LETTER=disabled: only with SIDECAR_TOPOLOGY=%s", PresetDeadLetter)
	refuse(o.NoDeadLetter && (o.DLX != "" || o.DLQ != ""), "SIDECAR_DEAD_LETTER=disabled: SIDECAR_DLX and SIDECAR_DLQ name what there is not")
	return errors.Join(append(errs, o.checkRetries(b)...)...)
}

// checkRetries looks at how often and how long.
func (o *Options) checkRetries(b *blueprint) []error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	none := o.RetryDelays != nil && len(o.RetryDelays) == 0
	refuse(none && !b.mayNotRetry,
		"SIDECAR_RETRY_DELAYS=none: only with SIDECAR_TOPOLOGY=%s; SIDECAR_MAX_RETRIES=0 parks at the first failure", PresetDelayLadder)
	refuse(o.RetryDelay != 0 && len(b.wait.delays) > 0, "SIDECAR_RETRY_DELAY: %s has one delay per retry, use SIDECAR_RETRY_DELAYS", o.Preset)
	if n := o.MaxRetries; n != nil {
		refuse(*n < 0 || *n > maxRetriesLimit, "SIDECAR_MAX_RETRIES=%d: 0 to %d", *n, maxRetriesLimit)
		refuse(*n > 0 && none, "SIDECAR_MAX_RETRIES=%d: with SIDECAR_RETRY_DELAYS=none there is nowhere to wait, only 0 is possible", *n)
	}
	for name, d := range map[string]time.Duration{"SIDECAR_RETRY_DELAY": o.RetryDelay, "SIDECAR_MESSAGE_TTL": o.MessageTTL} {
		if d != 0 {
			errs = append(errs, checkDelay(name, d))
		}
	}
	for i, d := range o.RetryDelays {
		errs = append(errs, checkDelay("SIDECAR_RETRY_DELAYS", d))
		refuse(i > 0 && d <= o.RetryDelays[max(i-1, 0)],
			"SIDECAR_RETRY_DELAYS: %s after %s: delays must be ascending", d, o.RetryDelays[max(i-1, 0)])
	}
	return errs
}

func checkDelay(variable string, d time.Duration) error {
	switch {
	case d < time.Millisecond || d > maxTTL:
		return fmt.Errorf("%s=%s: 1ms to %s", variable, d, maxTTL)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s=%s: the broker counts whole milliseconds", variable, d)
	}
	return nil
}
