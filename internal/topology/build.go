package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	maxRetriesLimit = 1_000_000
	maxTTL          = (1<<32 - 1) * time.Millisecond // what a broker's timer takes
)

// Build makes the plan of a preset. The error joins everything that is wrong, one line each, in the words of the
// configuration; the plan it returns has passed Validate.
func Build(o Options) (*Plan, error) {
	if o.Preset == "" {
		o.Preset = PresetFanout
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	var p *Plan
	switch o.Preset {
	case PresetFanout:
		if err := o.checkFanout(); err != nil {
			return nil, err
		}
		p = fanout(o)
	case PresetTopicTiers, PresetPerQueue, PresetDelayLadder, PresetDeadLetter:
		return nil, fmt.Errorf("SIDECAR_TOPOLOGY=%s is not available in this version: use %s", o.Preset, PresetFanout)
	default:
		return nil, fmt.Errorf("SIDECAR_TOPOLOGY=%s is not a topology: use %s", o.Preset, PresetFanout)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// check looks at what no preset can do anything with.
func (o *Options) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	switch {
	case o.Service == "":
		refuse("SIDECAR_SERVICE is required")
	case !serviceName.MatchString(o.Service):
		refuse("SIDECAR_SERVICE=%q: only letters, digits, '.', '_' and '-', not beginning with '-'", o.Service)
	case strings.HasPrefix(o.Service, "amq."):
		refuse("SIDECAR_SERVICE=%q: names that begin with amq. are the broker's", o.Service)
	}
	if o.QueueType != "" && o.QueueType != typeClassic && o.QueueType != typeQuorum {
		refuse("SIDECAR_QUEUE_TYPE=%q: classic or quorum", o.QueueType)
	}
	if t := o.ExchangeType; t != "" && !slices.Contains(exchangeTypes, t) {
		refuse("SIDECAR_EXCHANGE_TYPE=%q: %s", t, strings.Join(exchangeTypes, ", "))
	}
	if n := o.MaxRetries; n != nil && (*n < 0 || *n > maxRetriesLimit) {
		refuse("SIDECAR_MAX_RETRIES=%d: 0 to %d", *n, maxRetriesLimit)
	}
	if o.RetryDelay != 0 {
		errs = append(errs, checkDelay("SIDECAR_RETRY_DELAY", o.RetryDelay))
	}
	for i, d := range o.RetryDelays {
		errs = append(errs, checkDelay("SIDECAR_RETRY_DELAYS", d))
		if i > 0 && d <= o.RetryDelays[i-1] {
			refuse("SIDECAR_RETRY_DELAYS: %s after %s: delays must be ascending", d, o.RetryDelays[i-1])
		}
	}
	return errors.Join(errs...)
}

var exchangeTypes = []string{"fanout", "direct", "topic", "headers"}

func checkDelay(variable string, d time.Duration) error {
	switch {
	case d < time.Millisecond || d > maxTTL:
		return fmt.Errorf("%s=%s: 1ms to %s", variable, d, maxTTL)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s=%s: the broker counts whole milliseconds", variable, d)
	}
	return nil
}
