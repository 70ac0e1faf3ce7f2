package consume

import "sidecar/internal/message"

// possibleReasons names the pairs that can occur, so that every series exists from the start and no other ever does.
var possibleReasons = [message.Actions][]message.Reason{
	message.Ack: {message.ReasonSuccess, message.ReasonDisposition, message.ReasonForeignRetry},
	message.Retry: {
		message.ReasonDisposition, message.ReasonConflict, message.ReasonRateLimited, message.ReasonServerError,
		message.ReasonClientError, message.ReasonRedirect, message.ReasonInvalidStatus, message.ReasonTimeout,
		message.ReasonReset, message.ReasonMalformed, message.ReasonRefused,
	},
	message.Requeue: {
		message.ReasonTooEarly, message.ReasonDisposition, message.ReasonPanic, message.ReasonCrash, message.ReasonTooLarge,
	},
	message.Park: {
		message.ReasonDisposition, message.ReasonMaxRetries, message.ReasonParkStatus, message.ReasonTooLarge,
		message.ReasonCrash, message.ReasonHeadersTooLarge, message.ReasonMalformedDeath,
	},
	message.Discard: { // with the reasons of a park, when the plan has no dead-letter queue
		message.ReasonDisposition, message.ReasonMaxRetries, message.ReasonParkStatus, message.ReasonTooLarge,
		message.ReasonCrash, message.ReasonHeadersTooLarge, message.ReasonMalformedDeath,
	},
	message.Release: {message.ReasonAppDown, message.ReasonShutdown, message.ReasonUndispatched,
		message.ReasonSessionLost},
}
