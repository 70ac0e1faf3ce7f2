// Package telemetry makes the logger, the metric registry and the tracer. It names no metric of another package,
// decides nothing about a message and reads no environment; the only variables read below it are the batching and span
// limits (OTEL_BSP_*, OTEL_SPAN_*), which the OpenTelemetry SDK reads by itself.
package telemetry
