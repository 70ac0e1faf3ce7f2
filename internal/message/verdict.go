package message

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// Action is the decision about a message.
type Action uint8

// The actions. Retry and Requeue deliver the message again; Ack, Park and Discard remove it from the queue; Release
// returns the delivery uncounted, because the attempt says nothing about the message.
const (
	Ack Action = iota
	Retry
	Requeue
	Park
	Discard
	Release
)

// Actions is the number of actions: they are the integers 0 … Actions-1.
const Actions = len(actionNames)

var actionNames = [...]string{"ack", "retry", "requeue", "park", "discard", "release"}

// String returns the value of the outcome label and log field.
func (a Action) String() string { return actionNames[a] }

// Reason is the closed set of reasons: metric label, log field and (for Park) the x-final-reason header.
type Reason uint8

// The reasons, grouped by the actions they go with.
const (
	ReasonSuccess       Reason = iota // ack: 2xx
	ReasonDisposition                 // any action the app asked for by header or body
	ReasonConflict                    // 409
	ReasonRateLimited                 // 429
	ReasonTooEarly                    // 425
	ReasonServerError                 // 5xx
	ReasonClientError                 // any other 4xx
	ReasonRedirect                    // 3xx
	ReasonInvalidStatus               // below 200 or above 599
	ReasonTimeout                     // no answer in time
	ReasonReset                       // connection broken after bytes were sent
	ReasonMalformed                   // the answer is not HTTP, or does not say what to do, see FailureMalformed
	ReasonRefused                     // no byte was sent, and SIDECAR_APP_DOWN=retry counts it
	ReasonMaxRetries                  // park
	ReasonParkStatus                  // park: status listed in SIDECAR_PARK_ON_STATUS
	// park: body over SIDECAR_MAX_BODY; requeue: over SIDECAR_MEMORY without a spool file
	ReasonTooLarge
	ReasonHeadersTooLarge // park: a reject would push the header table over the frame size
	ReasonAppDown         // release
	ReasonShutdown        // release
	ReasonUndispatched    // release: the consumer or its session ended before the message was dispatched
	ReasonSessionLost     // release: the answer came after the session was lost; the broker delivers again
	ReasonPanic           // requeue: the sidecar itself panicked on this message
	ReasonForeignRetry    // ack: a retry of another service, see topology.Plan.Foreign
	ReasonNoRoute         // ack or park: no route matches, see SIDECAR_ROUTES_ELSE
	ReasonReplaced        // ack: parked or published for a retry before, but that ack did not arrive
	ReasonDeferred        // release, behind the other messages: see FailureDeferred
)

// Reasons is the number of reasons: they are the integers 0 … Reasons-1.
const Reasons = len(reasonNames)

var reasonNames = [...]string{
	"success", "disposition", "conflict", "rate_limited", "too_early", "server_error", "client_error", "redirect",
	"invalid_status", "timeout", "reset", "malformed", "refused", "max_retries", "park_status", "too_large",
	"headers_too_large", "app_down", "shutdown", "undispatched", "session_lost", "panic",
	"foreign_retry", "no_route", "replaced", "deferred",
}

// String returns the value of the reason label, log field and x-final-reason header.
func (r Reason) String() string { return reasonNames[r] }

// Verdict is the decision on one attempt; the topology plan turns it into a Settlement.
type Verdict struct {
	Action Action
	Reason Reason

	// Delay is how long the message should wait before it is tried again, 0 for the plan's own delay. For Requeue the
	// local wait is from Delay to Delay+Jitter, at random.
	Delay, Jitter time.Duration

	// Pause is how long this replica should not take messages, when the plan cannot delay the message itself.
	Pause time.Duration

	// Cause is the outcome behind the verdict; parking records it.
	Cause Outcome
}

// HeaderReply asks for the verdict on a redriven message: an address, replySeparator and a token for the message.
const HeaderReply = "x-redriven-reply-to"

// DefaultExchange is what permissions, people and configurations call the default exchange, whose name is empty.
const DefaultExchange = "amq.default"

// DirectReply is the broker's name for direct reply-to. As a reply-to it is only valid on a channel that consumes from
// it: on any other one the broker closes the channel over the message.
const DirectReply = "amq.rabbitmq.reply-to"

const (
	// replyPrefix begins every address at which the broker delivers to a waiting client and keeps nothing. Headers are the
	// publisher's to forge: no other place is ever written to.
	replyPrefix    = DirectReply + "."
	replySeparator = "#"
)

// MaxCanary is how many redriven messages may wait for their verdicts at once.
const MaxCanary = 1000

// VerdictReply is the JSON body of a reply: the outcome of a message, without any of its content.
type VerdictReply struct {
	MessageID string `json:"message_id,omitempty"`
	Outcome   string `json:"outcome"` // ack, retry, park, discard
	Reason    string `json:"reason"`
	Status    int    `json:"status,omitempty"` // of the app's answer, if there was one
}

// ReplyTo returns a value of HeaderReply.
func ReplyTo(address, token string) string { return address + replySeparator + token }

// Reply returns the parts of HeaderReply; the address is empty if the header is missing or invalid. Neither refers to
// the memory of the headers.
func Reply(h amqp.Table) (address, token string) {
	v, _ := h[HeaderReply].(string)
	if !strings.HasPrefix(v, replyPrefix) {
		return "", ""
	}
	at := strings.LastIndex(v, replySeparator)
	if at < 0 || at > amqpvalue.ShortMax || len(v)-at > 64 {
		return "", ""
	}
	v = strings.Clone(v)
	return v[:at], v[at+1:]
}
