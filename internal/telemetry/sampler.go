package telemetry

import (
	"errors"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newSampler reads the values of OTEL_TRACES_SAMPLER.
func newSampler(name string, ratio float64) (sdktrace.Sampler, error) {
	switch name {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio", "parentbased_traceidratio":
		if !(ratio >= 0 && ratio <= 1) { // not "ratio < 0 || ratio > 1": NaN must fail too
			return nil, errRatio
		}
		if name == "traceidratio" {
			return sdktrace.TraceIDRatioBased(ratio), nil
		}
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), nil
	}
	return nil, fmt.Errorf("trace sampler %q is not one of always_on, always_off, traceidratio and their parentbased_ "+
		"forms", name)
}

var errRatio = errors.New("trace sampler argument is not a number from 0 to 1")
