package dispatch

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/budget"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

func dapr(o *Options) { o.Dapr = true }

// said is what the app asked for.
type said struct {
	d       message.Disposition
	unknown bool
	detail  string
}

func heard(o message.Outcome) said { return said{o.Disposition, o.Unknown, o.Detail} }

var (
	saidNothing  = said{}
	saidRetry    = said{message.DispositionRetry, false, "dapr: RETRY"}
	saidDrop     = said{message.DispositionPark, false, "dapr: DROP"}
	saidUnknown  = said{message.DispositionRetry, true, "dapr: unknown status"}
	heardTooLong = said{unknown: true} // the verdict may be behind what is read
)

// framings are the ways in which a body can be sent.
func framings(body string) map[string]string {
	half := len(body) / 2
	return map[string]string{
		"length": "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body,
		"chunks": "Transfer-Encoding: chunked\r\n\r\n" + chunk(body[:half]) + chunk(body[half:]) + "0\r\n\r\n",
	}
}

// daprBodies are bodies, and what they say.
var daprBodies = map[string]said{
	`{"status":"SUCCESS"}`:                    saidNothing,
	`{"status":"RETRY"}`:                      saidRetry,
	`{"status":"DROP"}`:                       saidDrop,
	`{"status":"retry"}`:                      saidUnknown,
	`{"status":""}`:                           saidNothing,
	`{"status":null}`:                         saidNothing,
	`{"status":5}`:                            saidNothing,
	`{}`:                                      saidNothing,
	``:                                        saidNothing,
	`ok`:                                      saidNothing,
	`[{"status":"RETRY"}]`:                    saidNothing,
	`{"status":"RETRY"`:                       saidNothing,
	`{"a":{"status":"RETRY"}}`:                saidNothing,
	` {"\u0073tatus" : "R\u0045TRY"} more`:    saidRetry,
	"\r\n\t{\"status\":\"DROP\"}\n":           saidDrop,
	`{"Status":"DROP"}`:                       saidDrop,
	`{"status":"RETRY"}{"status":"DROP"}`:     saidRetry,
	`{"status":"RETRY","status":"DROP"}`:      saidDrop,
	"\ufeff{\"status\":\"RETRY\"}":            saidNothing,
	`{"status":` + strings.Repeat("[", 11000): saidNothing,
	`{"status":"DROP","pad":"` + strings.Repeat("p", 60<<10) + `"}`: saidDrop,
}

func TestDaprBodies(t *testing.T) {
	t.Parallel()
	for body, want := range daprBodies {
		for framing, raw := range framings(body) {
			o := answered(t, "HTTP/1.1 200 OK\r\n"+raw, dapr)
			wantStatus(t, o, 200)
			if got := heard(o); got != want {
				t.Errorf("%.60q by %s: got %+v, want %+v", body, framing, got, want)
			}
			if o := answered(t, "HTTP/1.1 200 OK\r\n"+raw); heard(o) != saidNothing || !o.OK() {
				t.Errorf("%.60q by %s, off: got %+v", body, framing, heard(o))
			}
		}
	}
}

// Only a 2xx is asked for its body, the content type of that makes no difference, and the header comes first.
func TestDaprAnswers(t *testing.T) {
	t.Parallel()
	const drop = `{"status":"DROP"}`
	for name, row := range map[string]struct {
		line string
		want said
	}{
		"201":                        {"201 Created", saidDrop},
		"as a problem document":      {"200 OK\r\nContent-Type: application/problem+json", saidDrop},
		"500":                        {"500 No", saidNothing},
		"header":                     {"200 OK\r\nAmqp-Disposition: ack", said{d: message.DispositionAck}},
		"header with a reason":       {"200 OK\r\nAmqp-Disposition: retry\r\nAmqp-Reason: r", said{d: message.DispositionRetry, detail: "r"}},
		"a reason alone":             {"200 OK\r\nAmqp-Reason: r", said{d: message.DispositionPark, detail: "r"}},
		"header with a strange word": {"200 OK\r\nAmqp-Disposition: explode", said{message.DispositionPark, true, "dapr: DROP"}},
	} {
		for framing, raw := range framings(drop) {
			o := answered(t, "HTTP/1.1 "+row.line+"\r\n"+raw, dapr)
			if got := heard(o); got != row.want || o.Failure != message.FailureNone {
				t.Errorf("%s by %s: got %+v, failure %q, want %+v", name, framing, got, o.Failure, row.want)
			}
		}
	}
	if o := scripted(t, apptest.AnswerAndClose("HTTP/1.0 200 OK\r\n\r\n"+drop), dapr); heard(o) != saidDrop {
		t.Errorf("until the end of the connection: got %+v", heard(o))
	}
}

// Where the body is a part of the answer, half a body is not an answer. It is one where the status says everything.
func TestDaprBrokenBody(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer, says string
		failure      message.Failure
	}{
		"short of its length": {"Content-Length: 40\r\n\r\n{\"status\":\"RETRY\"}", "within the answer's body", message.FailureReset},
		"within a chunk":      {"Transfer-Encoding: chunked\r\n\r\n12\r\n{\"sta", "within the answer's body", message.FailureReset},
		"a bad chunk":         {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "bad chunk", message.FailureMalformed},
		"a chunk too long":    {"Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n0\r\n\r\n", "bad chunk", message.FailureMalformed},
	} {
		for status, head := range map[int]string{200: "HTTP/1.1 200 OK\r\n", 500: "HTTP/1.1 500 No\r\n"} {
			script := apptest.AnswerAndClose(head + row.answer)
			wantStatus(t, scripted(t, script), status)
			if o := scripted(t, script, dapr); status == 500 {
				wantStatus(t, o, 500)
			} else {
				t.Run(name, func(t *testing.T) { wantFailure(t, o, row.failure, row.says) })
			}
		}
	}
}

// TestDaprLongBody: what cannot be read to its end is a failed attempt, unless the header or the status says everything.
func TestDaprLongBody(t *testing.T) {
	t.Parallel()
	long := `{"pad":"` + strings.Repeat("p", http1.MaxBody) + `"}`
	for framing, raw := range framings(long) {
		o := answered(t, "HTTP/1.1 200 OK\r\nAmqp-Disposition: ack\r\n"+raw, dapr)
		wantStatus(t, o, 200)
		if o.Disposition != message.DispositionAck {
			t.Errorf("by %s: %+v", framing, o)
		}
		o = answered(t, "HTTP/1.1 404 No\r\n"+raw, dapr)
		wantStatus(t, o, 404)
		o = answered(t, "HTTP/1.1 200 OK\r\nRetry-After: 7\r\nAmqp-Reason: why\r\nContent-Type: application/problem+json\r\n"+raw, dapr)
		wantFailure(t, o, message.FailureMalformed, "over 64 KiB")
		if o.RetryAfter >= 0 || o.Problem != nil || o.Detail != "why" {
			t.Errorf("by %s: a failed attempt keeps %v of an answer", framing, o)
		}
	}
	end := apptest.AnswerAndClose("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + long)
	wantFailure(t, scripted(t, end, dapr), message.FailureMalformed, "too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB")
	wantStatus(t, scripted(t, end), 200)
	tiny := strings.Repeat("1\r\np\r\n", 30_000) // more framing than the bound
	o := answered(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"pad\":\"\r\n"+tiny+"2\r\n\"}\r\n0\r\n\r\n", dapr)
	wantFailure(t, o, message.FailureMalformed, "over 64 KiB")
}

// FuzzDapr reads a body in both framings and in pieces of any size. What is heard must be the same each time, from the
// closed set, and what the standard library finds in the same JSON when it is asked in another way. Without memory for
// a large body it is the same or an error.
func FuzzDapr(f *testing.F) {
	seeds := slices.Collect(maps.Keys(daprBodies))
	for _, seed := range append(seeds,
		`{"status":1}`, `{"ſtatus":"DROP"}`, `{"status":"RETRY"`, `"RETRY"`, "{\"\xff\":1,\"status\":\"\xff\"}",
		padded("RETRY", http1.MaxBody), padded("RETRY", http1.MaxBody+1), padded("DROP", 70000), padded("DROP", http1.MaxBody)+strings.Repeat(" ", 70000),
		`{"status":"DROP"}`+strings.Repeat("p", 70000), `{"status":"RETRY",}`+strings.Repeat("p", 70000), `{"status":"RETRY","pad":"`+strings.Repeat("p", 70000)+`"}`,
		strings.Repeat(" ", http1.MaxBody-1)+`{"status":"RETRY"}`, strings.Repeat(" ", http1.MaxBody-1)+"text", `["`+strings.Repeat("p", 70000)+`"]`,
		`{"status":"RETRY"}`+strings.Repeat(" ", 70000), `{"pad":"`+strings.Repeat("p", 70000), strings.Repeat(" ", 70000), strings.Repeat("p", 70000),
	) {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(200))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		want := wantHeard(body)
		var explained message.Outcome
		explained.Status = 200
		DaprAnswer(body, &explained)
		for framing, raw := range framings(string(body)) {
			read := func(o Options) (out message.Outcome, err error) {
				o.Dapr = true
				x := newAttempt(&Target{o: o}, time.Time{})
				defer x.release()
				if err = x.exchange.Answer.Read(&trickle{[]byte("HTTP/1.1 200 OK\r\n" + raw), int(step) + 1}, &x.answer); err == nil {
					x.answer.report(&x.exchange.Answer, &out, time.Minute)
				}
				return out, err
			}
			o, err := read(Options{})
			if err != nil || heard(o) != want {
				t.Fatalf("%s: got %+v (%v), want %+v", framing, heard(o), err, want)
			}
			if heard(explained) != want || explained.Failure != o.Failure {
				t.Fatalf("%s: explained as %+v", framing, explained)
			}
			o, err = read(Options{Memory: budget.New(1).Account(budget.Answers)})
			if err != nil && (!strings.Contains(err.Error(), "SIDECAR_MEMORY") || len(body) <= 4<<10) || err == nil && heard(o) != want {
				t.Fatalf("%s without memory: got %+v (%v)", framing, heard(o), err)
			}
		}
	})
}

// padded is a body of n bytes with a status at its end.
func padded(status string, n int) string {
	end := `","status":"` + status + `"}`
	return `{"pad":"` + strings.Repeat("p", n-len(`{"pad":"`)-len(end)) + end
}

func wantHeard(body []byte) said {
	words := map[string]said{"": saidNothing, "SUCCESS": saidNothing, "RETRY": saidRetry, "DROP": saidDrop}
	var first json.RawMessage
	var object struct{ Status string }
	err := json.NewDecoder(strings.NewReader(string(body[:min(len(body), http1.MaxBody)]))).Decode(&first)
	cut := err == io.EOF || err == io.ErrUnexpectedEOF && strings.TrimLeft(string(body), " \t\r\n")[0] == '{'
	if len(body) > http1.MaxBody && cut {
		return heardTooLong
	}
	if err != nil || json.Unmarshal(first, &object) != nil {
		return saidNothing
	}
	if want, known := words[object.Status]; known {
		return want
	}
	return saidUnknown
}
