package retry

import (
	"testing"
	"time"

	"sidecar/internal/message"
)

func policy() Policy {
	return Policy{ParkOn: []int{400, 413, 422}, RequeueMin: time.Second, RequeueMax: 5 * time.Second}
}

// TestDecideEveryStatus compares all statuses at every retry count with the contract, written a second time as plainly as
// possible.
func TestDecideEveryStatus(t *testing.T) {
	t.Parallel()
	p := policy()
	for status := range 1000 {
		for count := range 13 {
			m := &message.Message{RetryCount: count, MaxRetries: 10}
			v := p.Decide(m, message.Outcome{Status: status, RetryAfter: -1})
			want := message.Retry
			switch {
			case status >= 200 && status <= 299:
				want = message.Ack
			case status == 400 || status == 413 || status == 422 || count >= 10:
				want = message.Park
			case status == 425:
				want = message.Requeue
			}
			if v.Action != want {
				t.Fatalf("status %d at retry %d: %v, want %v", status, count, v.Action, want)
			}
			if want == message.Park && count < 10 && v.Reason != message.ReasonParkStatus {
				t.Fatalf("status %d: parked for %v", status, v.Reason)
			}
			if v.Cause.Status != status {
				t.Fatalf("status %d: the verdict forgot its cause", status)
			}
		}
	}
}

func TestDecideReasons(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]message.Reason{
		200: message.ReasonSuccess, 299: message.ReasonSuccess, 409: message.ReasonConflict,
		429: message.ReasonRateLimited, 425: message.ReasonTooEarly, 500: message.ReasonServerError,
		599: message.ReasonServerError, 404: message.ReasonClientError, 301: message.ReasonRedirect,
		399: message.ReasonRedirect, 0: message.ReasonInvalidStatus, 101: message.ReasonInvalidStatus,
		199: message.ReasonInvalidStatus, 600: message.ReasonInvalidStatus, 999: message.ReasonInvalidStatus,
		413: message.ReasonParkStatus,
	} {
		m := &message.Message{MaxRetries: 10}
		if v := policy().Decide(m, message.Outcome{Status: status, RetryAfter: -1}); v.Reason != want {
			t.Errorf("status %d: reason %v, want %v", status, v.Reason, want)
		}
	}
}

func TestDecideFailures(t *testing.T) {
	t.Parallel()
	hold, count := policy(), policy()
	count.CountRefused = true
	for _, c := range []struct {
		name    string
		p       Policy
		failure message.Failure
		retries int
		action  message.Action
		reason  message.Reason
	}{
		{"timeout", hold, message.FailureTimeout, 0, message.Retry, message.ReasonTimeout},
		{"timeout at the limit", hold, message.FailureTimeout, 10, message.Park, message.ReasonMaxRetries},
		{"malformed", hold, message.FailureMalformed, 0, message.Retry, message.ReasonMalformed},
		{"refused is not an attempt", hold, message.FailureRefused, 0, message.Release, message.ReasonAppDown},
		{"refused never parks", hold, message.FailureRefused, 10, message.Release, message.ReasonAppDown},
		{"refused counted", count, message.FailureRefused, 0, message.Retry, message.ReasonRefused},
		{"a stop never counts", hold, message.FailureInterrupted, 10, message.Release, message.ReasonShutdown},
		{"deferred is not an attempt", hold, message.FailureDeferred, 10, message.Release, message.ReasonDeferred},
		{"no route parks", hold, message.FailureNoRoute, 0, message.Park, message.ReasonNoRoute},
		{"no route acks", Policy{AckUnrouted: true}, message.FailureNoRoute, 10, message.Ack, message.ReasonNoRoute},
		{"too large parks unsent", hold, message.FailureTooLarge, 0, message.Park, message.ReasonTooLarge},
	} {
		m := &message.Message{RetryCount: c.retries, MaxRetries: 10}
		v := c.p.Decide(m, message.Outcome{Failure: c.failure, RetryAfter: -1})
		if v.Action != c.action || v.Reason != c.reason {
			t.Errorf("%s: %v(%v), want %v(%v)", c.name, v.Action, v.Reason, c.action, c.reason)
		}
	}
}

func TestDecideDisposition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		disposition message.Disposition
		status      int
		retries     int
		action      message.Action
		reason      message.Reason
	}{
		{message.DispositionAck, 500, 0, message.Ack, message.ReasonDisposition},
		{message.DispositionRetry, 200, 0, message.Retry, message.ReasonDisposition},
		{message.DispositionRetry, 200, 10, message.Park, message.ReasonMaxRetries},
		{message.DispositionRequeue, 200, 3, message.Requeue, message.ReasonDisposition},
		{message.DispositionRequeue, 200, 10, message.Park, message.ReasonMaxRetries},
		{message.DispositionPark, 200, 0, message.Park, message.ReasonDisposition},
		{message.DispositionDiscard, 500, 10, message.Discard, message.ReasonDisposition},
		{message.DispositionRetry, 413, 0, message.Retry, message.ReasonDisposition},
	} {
		m := &message.Message{RetryCount: c.retries, MaxRetries: 10}
		v := policy().Decide(m, message.Outcome{Status: c.status, Disposition: c.disposition, RetryAfter: -1})
		if v.Action != c.action || v.Reason != c.reason {
			t.Errorf("%+v: %v(%v)", c, v.Action, v.Reason)
		}
	}
}

func TestDecideWaits(t *testing.T) {
	t.Parallel()
	p := policy()
	decide := func(status int, after time.Duration, retries int) message.Verdict {
		return p.Decide(&message.Message{RetryCount: retries, MaxRetries: 10}, message.Outcome{Status: status, RetryAfter: after})
	}
	if v := decide(425, -1, 0); v.Delay != time.Second || v.Jitter != 4*time.Second {
		t.Errorf("425 is delayed %v + up to %v, want 1s + up to 4s", v.Delay, v.Jitter)
	}
	if v := decide(425, 7*time.Second, 0); v.Delay != 7*time.Second || v.Jitter != 0 {
		t.Errorf("425 with Retry-After sleeps %v + %v, want 7s", v.Delay, v.Jitter)
	}
	if v := decide(425, 0, 0); v.Delay != MinRequeueDelay {
		t.Errorf("425 with Retry-After 0 sleeps %v, want the low-water mark", v.Delay)
	}
	for _, status := range []int{429, 503} {
		if v := decide(status, time.Minute, 0); v.Delay != time.Minute || v.Pause != 0 {
			t.Errorf("%d: delay %v pause %v", status, v.Delay, v.Pause)
		}
		if v := decide(status, time.Minute, 10); v.Action != message.Park || v.Pause != time.Minute {
			t.Errorf("%d at the limit: %v pause %v", status, v.Action, v.Pause)
		}
	}
	if v := decide(500, time.Minute, 0); v.Delay != 0 {
		t.Errorf("Retry-After counts on 429 and 503 only, 500 waited %v", v.Delay)
	}
	p.RequeueMin, p.RequeueMax = 0, 0
	if v := decide(425, -1, 0); v.Delay != MinRequeueDelay || v.Jitter != 0 {
		t.Errorf("without configured delays: %v + %v, want the low-water mark", v.Delay, v.Jitter)
	}
}

func TestMaxRetriesZeroParksOnFirstFailure(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 404} {
		v := policy().Decide(&message.Message{}, message.Outcome{Status: status, RetryAfter: -1})
		if v.Action != message.Park || v.Reason != message.ReasonMaxRetries {
			t.Errorf("%d: %v(%v)", status, v.Action, v.Reason)
		}
	}
	for _, retries := range []int{0, 3} { // counted before the limit became 0
		for _, o := range []message.Outcome{{Status: 425}, {Status: 200, Disposition: message.DispositionRequeue}} {
			if v := policy().Decide(&message.Message{RetryCount: retries}, o); v.Action != message.Requeue {
				t.Errorf("%+v after %d retries: %v(%v)", o, retries, v.Action, v.Reason)
			}
		}
	}
}

// TestDecidePanics: a panic of the sidecar is no failure of the message, so the retry limit does not park it.
func TestDecidePanics(t *testing.T) {
	t.Parallel()
	p := Policy{PanicHold: time.Second}
	v := p.Decide(&message.Message{RetryCount: 3, MaxRetries: 3}, message.Outcome{Failure: message.FailurePanic})
	if v.Action != message.Requeue || v.Reason != message.ReasonPanic || v.Delay != time.Second {
		t.Errorf("%v(%v) after %v", v.Action, v.Reason, v.Delay)
	}
}
