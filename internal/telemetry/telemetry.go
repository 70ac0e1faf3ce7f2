// Package telemetry makes the three things that look at the sidecar from outside: the logger, the metric registry and
// the tracer. It names no metric of another package, decides nothing about a message and reads no environment; the
// only variables read below it are the batching and span limits (OTEL_BSP_*, OTEL_SPAN_*) that the OpenTelemetry SDK
// looks up by itself.
package telemetry
