package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log" //nolint:depguard // to capture what libraries print with it
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel"
)

// AdoptLibraries sends what libraries print on their own (the standard log package, the AMQP client, the
// OpenTelemetry SDK) to l as debug records of event "library", so that nothing but l writes to stdout or stderr.
// Call it before any connection is made: the AMQP client's logger is an unguarded package variable. It may be called
// again at any time: the last logger counts.
func AdoptLibraries(l *slog.Logger) {
	log.SetFlags(0)
	log.SetPrefix("")
	log.SetOutput(standardLog{l, "log"})
	amqpLogger.Store(l)
	setAMQPLogger()
	otel.SetLogger(logr.New(otelLog{l}))
}

var (
	amqpLogger    atomic.Pointer[slog.Logger]
	setAMQPLogger = sync.OnceFunc(func() { amqp.SetLogger(amqpLog{}) })
)

// LibraryLog returns a logger of the standard package for libraries that need one, such as http.Server.ErrorLog.
// library names the source in the record.
func LibraryLog(l *slog.Logger, library string) *log.Logger {
	return log.New(standardLog{l, library}, "", 0)
}

type standardLog struct {
	logger  *slog.Logger
	library string
}

// Write implements io.Writer. It never fails.
func (w standardLog) Write(p []byte) (int, error) {
	if w.logger.Enabled(context.Background(), slog.LevelDebug) {
		w.logger.Debug("library", "library", w.library, "text", string(bytes.TrimRight(p, "\n")))
	}
	return len(p), nil
}

// amqpLog writes to amqpLogger.
type amqpLog struct{}

// Printf implements amqp091.Logging.
func (amqpLog) Printf(format string, v ...any) {
	if l := amqpLogger.Load(); l.Enabled(context.Background(), slog.LevelDebug) {
		l.Debug("library", "library", "amqp091", "text", fmt.Sprintf(format, v...))
	}
}

// otelLog drops the SDK's key-value pairs: they hold whole configurations, resource attributes included.
type otelLog struct{ logger *slog.Logger }

// otelInfo is the verbosity of OpenTelemetry's informational messages; its debug messages come once per batch.
const otelInfo = 4

// Init implements logr.LogSink, as do the methods below.
func (o otelLog) Init(logr.RuntimeInfo) {}

// Enabled lets through what OpenTelemetry calls info, and more serious things.
func (o otelLog) Enabled(level int) bool {
	return level <= otelInfo && o.logger.Enabled(context.Background(), slog.LevelDebug)
}

// Info logs msg alone.
func (o otelLog) Info(_ int, msg string, _ ...any) {
	o.logger.Debug("library", "library", "opentelemetry", "text", msg)
}

// Error logs at debug like the rest: permanent failures also reach otel.Handle, and are logged there as a warning.
func (o otelLog) Error(err error, msg string, _ ...any) {
	o.logger.Debug("library", "library", "opentelemetry", "text", msg, "error", err)
}

// WithValues drops the values.
func (o otelLog) WithValues(...any) logr.LogSink { return o }

// WithName drops the name.
func (o otelLog) WithName(string) logr.LogSink { return o }
