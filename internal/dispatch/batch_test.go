package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/apptest"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

func inBatches(format string) func(*Options) { return func(o *Options) { o.BatchFormat = format } }

// samples are n messages with the ids m-0, m-1 …
func samples(n int) []*message.Message {
	ms := make([]*message.Message, n)
	for i := range ms {
		ms[i] = sample()
		ms[i].MessageID = "m-" + itoa(i)
	}
	return ms
}

// dispatchAll POSTs ms in one request and checks what holds for the outcomes of any.
func dispatchAll(tb testing.TB, t *Target, ms ...*message.Message) (whole message.Outcome, each []message.Outcome) {
	tb.Helper()
	whole, each = t.DispatchBatch(context.Background(), ms, message.TraceContext{})
	if whole.At.IsZero() || whole.Elapsed <= 0 {
		tb.Errorf("outcome without a time: %+v", whole)
	}
	if each != nil && (len(each) != len(ms) || !whole.OK()) {
		tb.Fatalf("%d outcomes for %d messages, status %d", len(each), len(ms), whole.Status)
	}
	for i, o := range each {
		if o.At != whole.At || o.Elapsed != whole.Elapsed || o.Failure != message.FailureNone || o.Err != nil || o.Answer != "" {
			tb.Errorf("outcome %d: %+v", i, o)
		}
	}
	return whole, each
}

// answeredAll returns what an app says of n messages in one POST.
func answeredAll(t *testing.T, answer string, n int, changes ...func(*Options)) (whole message.Outcome, each []message.Outcome) {
	t.Helper()
	s := apptest.Listen(t, apptest.Answer(answer))
	target := newTarget(t, s.URL, append(changes, inBatches("jsonl"))...)
	whole, each = dispatchAll(t, target, samples(n)...)
	wantSeen(t, s, 1, 1)
	return whole, each
}

// postAll dispatches ms to an app that answers 204 and returns the request it got.
func postAll(t *testing.T, format string, ms []*message.Message, changes ...func(*Options)) (*apptest.Request, message.Outcome, []message.Outcome) {
	t.Helper()
	s, target := listen(t, 204, append(changes, inBatches(format))...)
	whole, each := dispatchAll(t, target, ms...)
	wantStatus(t, whole, 204)
	for _, o := range each {
		wantStatus(t, o, 204)
	}
	wantSeen(t, s, 1, 1)
	return s.Requests()[0], whole, each
}

// everything is a message with every property.
func everything() *message.Message {
	return &message.Message{
		Body: []byte(`{"n": 1}`), ContentType: "application/json", ContentEncoding: "identity", MessageID: "id-1",
		CorrelationID: "corr", ReplyTo: "reply", Type: "order", AppID: "shop", UserID: "guest", Expiration: "60000",
		Timestamp: time.Date(2026, 7, 1, 12, 0, 0, 0, time.FixedZone("CEST", 7200)), Priority: 5,
		Queue: "q", Exchange: "ex", RoutingKey: "a.b", Redelivered: true, RetryCount: 3, MaxRetries: 3,
		Trace: message.TraceContext{
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "a=b", Baggage: "k=v%20w",
		},
		Headers: amqp.Table{"tenant": "acme", "n": int64(7), "x-death": []any{}, "x-original-exchange": "e", "CC": "x",
			"traceparent": "00-11111111111111111111111111111111-2222222222222222-00", "secret": "s"},
	}
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	nothing := &message.Message{Queue: "a\"b", MaxRetries: 10}
	binary := &message.Message{Body: []byte("\x00\xff\r\n"), Queue: "q", MaxRetries: 10, RoutingKey: "k\n"}
	r, _, _ := postAll(t, "jsonl", []*message.Message{everything(), nothing, binary}, func(o *Options) {
		o.Token = func() string { return "s3cret" }
		o.Forward, o.Passthrough = []string{"t*"}, []string{"n"}
	})
	body := strings.Join([]string{
		`{"exchange":"ex","routing_key":"a.b","content_type":"application/json","content_encoding":"identity","priority":5,` +
			`"correlation_id":"corr","reply_to":"reply","expiration":"60000","message_id":"id-1","timestamp":"2026-07-01T10:00:00Z",` +
			`"type":"order","user_id":"guest","app_id":"shop","headers":{"baggage":"k=v%20w","n":7,"tenant":"acme",` +
			`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b"},"body":{"n": 1},` +
			`"delivery":{"attempt":4,"retry_count":3,"last_attempt":true,"redelivered":true,"queue":"q"}}`,
		`{"exchange":"","routing_key":"","body":"",` +
			`"delivery":{"attempt":1,"retry_count":0,"last_attempt":false,"redelivered":false,"queue":"a\"b"}}`,
		`{"exchange":"","routing_key":"k\n","body_base64":"AP8NCg==",` +
			`"delivery":{"attempt":1,"retry_count":0,"last_attempt":false,"redelivered":false,"queue":"q"}}`,
	}, "\n") + "\n"
	wantRequest(t, r,
		"POST / HTTP/1.1",
		"Host: "+r.Header.Get("Host"),
		"User-Agent: amqp-sidecar/test",
		"Authorization: Bearer s3cret",
		"Content-Type: application/jsonl",
		"Content-Length: "+itoa(len(body)),
		"", body,
	)
}

// Each line is the message itself in JSON, also where nothing of the message is harmless.
func TestJSONLinesOfHostileMessages(t *testing.T) {
	t.Parallel()
	m := everything()
	m.Trace = message.TraceContext{}
	m.Headers = amqp.Table{"\xff\n": "\x00\xff", "a\r\nb": []any{amqp.Table{"\"": amqp.Decimal{Scale: 255, Value: -1}}, nil}, "": int8(-1)}
	m.MessageID, m.Type, m.Exchange, m.RoutingKey = "\xff\r\n", "\u2028</script>", "e\x00", "\"}\n{"
	m.Body = []byte("}\n{\"index\":0}\u2028\x7f")
	r, _, _ := postAll(t, "jsonl", []*message.Message{m, m})
	lines := strings.SplitAfter(string(r.Body), "\n")
	if len(lines) != 3 || lines[2] != "" || lines[0] != lines[1] {
		t.Fatalf("%q", r.Body)
	}
	form := amqp.Publishing{
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Priority: m.Priority, CorrelationId: m.CorrelationID,
		ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageID, Timestamp: m.Timestamp, Type: m.Type,
		UserId: m.UserID, AppId: m.AppID, Headers: m.Headers, Body: m.Body,
	}
	own, ok := strings.CutSuffix(lines[0], `,"delivery":{"attempt":4,"retry_count":3,"last_attempt":true,"redelivered":true,"queue":"q"}}`+"\n")
	if want := string(amqpvalue.AppendLine(nil, m.Exchange, m.RoutingKey, &form)); !ok || own+"}" != want {
		t.Errorf("got %s, want %s", lines[0], want)
	}
	if !json.Valid([]byte(lines[0])) {
		t.Error("not JSON")
	}
}

// Headers of the broker and of a trace are not those of the publisher.
func TestHeadersOfJSONLines(t *testing.T) {
	t.Parallel()
	m, traced := everything(), everything()
	m.Trace = message.TraceContext{}
	traced.Trace = message.TraceContext{Traceparent: "00-1-2-03"}
	traced.Headers = amqp.Table{"TraceParent": "own", "baggage": "own"}
	r, _, _ := postAll(t, "jsonl", []*message.Message{m, traced, sample()})
	var got []string
	for line := range bytes.Lines(r.Body) {
		var v struct{ Headers json.RawMessage }
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(v.Headers))
	}
	if want := []string{`{"n":7,"secret":"s","tenant":"acme"}`, `{"traceparent":"00-1-2-03"}`, ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBatchHead(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(204)))
	target := newTarget(t, s.URL+"/in?x=1", inBatches("jsonl"), func(o *Options) {
		o.Routes = []string{"order.#=/orders/{routing_key}"}
		o.Unrouted = true
	})
	trace := message.TraceContext{Traceparent: "00-1-2-03", Tracestate: "a=b", Baggage: "c=d"}
	whole, each := target.DispatchBatch(t.Context(), samples(2), trace)
	if whole.Route != 1 || whole.URL != s.URL+"/orders/order.created" || each[1].Route != 1 || each[1].URL != whole.URL {
		t.Errorf("%+v %+v", whole, each)
	}
	m := sample()
	m.RoutingKey = "other"
	if whole, each = dispatchAll(t, target, m); whole.Route != 0 || whole.URL != "" || each[0].URL != "" {
		t.Errorf("%+v %+v", whole, each)
	}
	r := s.Requests()
	if r[0].Target != "/orders/order.created?x=1" || r[1].Target != "/in?x=1" {
		t.Errorf("%s, %s", r[0].Target, r[1].Target)
	}
	wantHeaders(t, r[0].Header, map[string]string{"Traceparent": "00-1-2-03", "Tracestate": "a=b", "Baggage": "c=d", "Amqp-Queue": ""})
	wantHeaders(t, r[1].Header, map[string]string{"Traceparent": "", "Tracestate": "", "Baggage": ""})
}

// What the app answers to all messages is one outcome, with everything that the answer to one message has.
func TestBatchAnsweredAsAWhole(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer string
		want   func(o *message.Outcome) bool
	}{
		"503": {apptest.Full(503, "later", "Content-Type: text/plain", "Retry-After: 7", "Amqp-Reason: r"), func(o *message.Outcome) bool {
			return o.Status == 503 && o.RetryAfter == 7*time.Second && o.Detail == "r" && o.Answer == "later"
		}},
		"problem": {apptest.Full(422, `{"title":"T"}`, "Content-Type: application/problem+json"), func(o *message.Outcome) bool {
			return o.Status == 422 && o.Problem != nil && o.Problem.Title == "T" && o.RetryAfter < 0
		}},
		"verdicts of a 500":    {apptest.Full(500, `{"index":0,"status":200}`, "Content-Type: application/jsonl"), func(o *message.Outcome) bool { return o.Status == 500 }},
		"a disposition":        {apptest.Full(200, `{"index":0,"status":500}`, "Content-Type: application/jsonl", "Amqp-Disposition: ack"), func(o *message.Outcome) bool { return o.OK() && o.Disposition == message.DispositionAck }},
		"a disposition of 207": {apptest.Full(207, "junk", "Amqp-Disposition: park"), func(o *message.Outcome) bool { return o.Status == 207 && o.Disposition == message.DispositionPark }},
		"not HTTP":             {"junk\r\n\r\n", func(o *message.Outcome) bool { return o.Failure == message.FailureMalformed }},
	} {
		for _, n := range []int{1, 3} {
			whole, each := answeredAll(t, row.answer, n, func(o *Options) { o.Answer = 1024 })
			if each != nil || !row.want(&whole) {
				t.Errorf("%s, %d messages: %+v, each %+v", name, n, whole, each)
			}
		}
	}
}

// A batch that is not POSTed.
func TestBatchThatIsNotSent(t *testing.T) {
	t.Parallel()
	s, target := listen(t, 204, inBatches("jsonl"), func(o *Options) { o.MaxBody, o.Routes = 100, []string{"order.#=/orders"} })
	large, unrouted := sized(101), sample()
	unrouted.RoutingKey = "other"
	for _, ms := range [][]*message.Message{{large}, {sample(), large}} {
		whole, each := dispatchAll(t, target, ms...)
		wantFailure(t, whole, message.FailureTooLarge, "body too large: 101 bytes, limit 100")
		if each != nil {
			t.Error(each)
		}
	}
	whole, each := dispatchAll(t, target, unrouted)
	wantFailure(t, whole, message.FailureNoRoute, "no route matches")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("drain"))
	interrupted, none := target.DispatchBatch(ctx, samples(2), message.TraceContext{})
	wantFailure(t, interrupted, message.FailureInterrupted, "drain")
	if each != nil || none != nil {
		t.Error(each, none)
	}
	wantSeen(t, s, 0, 0)
	whole, each = dispatchAll(t, newTarget(t, apptest.Refused(t), inBatches("jsonl")), samples(2)...)
	wantFailure(t, whole, message.FailureRefused, "refused")
	if each != nil {
		t.Error(each)
	}
}

// heardOf is what an outcome says in short.
func heardOf(o message.Outcome) string {
	pause := -1.0
	if o.RetryAfter >= 0 {
		pause = o.RetryAfter.Seconds()
	}
	b, _ := json.Marshal([]any{o.Status, o.Disposition, o.Unknown, o.Detail, pause})
	return string(b)
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const jsonl, ndjson, plain = "Content-Type: application/jsonl", "Content-Type: Application/X-NDJSON; charset=utf-8", "Content-Type: application/json"
	const done, retried = `[200,0,false,"",-1]`, `[200,2,false,"batchItemFailures",-1]`
	for name, row := range map[string]struct {
		answer string
		want   map[int]string // of the messages that are not done
	}{
		"204":                 {apptest.Status(204), nil},
		"no body":             {apptest.Status(200, jsonl), nil},
		"blank lines":         {apptest.Full(200, "\n \r\n\t\n", jsonl), nil},
		"207, no body":        {apptest.Status(207), nil},
		"text":                {apptest.Full(200, "OK"), nil},
		"text with {":         {apptest.Full(200, `OK {"id":"m-1"}`), nil},
		"HTML":                {apptest.Full(200, "<html>", "Content-Type: text/html"), nil},
		"an object":           {apptest.Full(200, `{"ok":true}`, plain), nil},
		"no failures":         {apptest.Full(200, `{"batchItemFailures":[]}`, plain), nil},
		"null failures":       {apptest.Full(200, `{"batchItemFailures":null}`, plain), nil},
		"compressed":          {apptest.Full(200, "\x1f\x8b", "Content-Encoding: gzip", "Content-Type: text/html"), nil},
		"identity":            {apptest.Full(200, " \n{}", plain, "Content-Encoding: identity"), nil},
		"compressed, no body": {apptest.Full(200, "", plain, "Content-Encoding: gzip"), nil},
		"one line":            {apptest.Full(200, `{"index":3,"status":503,"retry_after":5,"disposition":"park","reason":"a\n\u001bb"}`, jsonl), map[int]string{3: `[503,4,false,"a b",5]`}},
		"three lines": {apptest.Full(200, "\r\n{\"index\":3,\"status\":200}\r\n\n{\"index\":0,\"status\":425}\n {\"index\":1,\"disposition\":\"Requeue\",\"more\":[{}]}", ndjson), map[int]string{
			3: done, 0: `[425,0,false,"",-1]`, 1: `[200,3,false,"",-1]`,
		}},
		"207":                  {apptest.Full(207, `{"index":0,"status":500,"retry_after":0.25,"reason":null}`+"\n"), map[int]string{0: `[500,0,false,"",0.25]`}},
		"a word and a status":  {apptest.Full(207, `{"index":0,"status":500,"disposition":"explode"}`), map[int]string{0: `[500,0,true,"",-1]`}},
		"a long pause":         {apptest.Full(207, `{"index":0,"status":503,"retry_after":1e300}`), map[int]string{0: `[503,0,false,"",300]`}},
		"all dispositions":     {apptest.Full(207, `{"index":0,"disposition":"ack"}`+"\n"+`{"index":1,"disposition":"retry"}`+"\n"+`{"index":2,"disposition":"discard"}`), map[int]string{0: `[207,1,false,"",-1]`, 1: `[207,2,false,"",-1]`, 2: `[207,5,false,"",-1]`}},
		"the outermost states": {apptest.Full(207, `{"index":0,"status":100}`+"\n"+`{"index":1,"status":599}`), map[int]string{0: `[100,0,false,"",-1]`, 1: `[599,0,false,"",-1]`}},
		"a long reason":        {apptest.Full(207, `{"index":0,"status":500,"reason":"`+strings.Repeat("r", 300)+`"}`), map[int]string{0: `[500,0,false,"` + strings.Repeat("r", maxReason) + `",-1]`}},
		"Lambda":               {apptest.Full(200, ` {"batchItemFailures":[{"itemIdentifier":"m-1","x":1},{"itemIdentifier":"3"},{"itemIdentifier":"m-1"}]}`), map[int]string{1: retried, 3: retried}},
		"behind a mark":        {apptest.Full(200, "\ufeff"+`{"batchItemFailures":[{"itemIdentifier":"0"}]}`), map[int]string{0: retried}},
		"text in braces":       {apptest.Full(200, "{done}"), nil},
		"Lambda as HTML":       {apptest.Full(202, `{"batchItemFailures":[{"itemIdentifier":"0"}]}`, "Content-Type: text/html"), map[int]string{0: `[202,2,false,"batchItemFailures",-1]`}},
	} {
		whole, each := answeredAll(t, row.answer, 4)
		if each == nil {
			t.Errorf("%s: %+v", name, whole)
			continue
		}
		for i, o := range each {
			want := row.want[i]
			if want == "" {
				want = strings.Replace(done, "200", itoa(whole.Status), 1)
			}
			if got := heardOf(o); got != want {
				t.Errorf("%s: message %d is %s, want %s", name, i, got, want)
			}
		}
	}
}

// What the headers say holds for the messages that are done, and for no others.
func TestVerdictsBesideHeaders(t *testing.T) {
	t.Parallel()
	_, each := answeredAll(t, apptest.Full(207, `{"index":1,"status":500}`, "Amqp-Reason: r", "Retry-After: 3"), 2)
	if len(each) != 2 || heardOf(each[0]) != `[207,0,false,"r",3]` || heardOf(each[1]) != `[500,0,false,"",-1]` {
		t.Errorf("%+v", each)
	}
}

// An identifier may be the id of several messages. It must not be the id of one message and the index of another, whether
// that other one has an id or not.
func TestLambdaIdentifiers(t *testing.T) {
	t.Parallel()
	retried := func(name string, ids []string, identifier string, want ...int) {
		s := apptest.Listen(t, apptest.Answer(apptest.Full(200, `{"batchItemFailures":[{"itemIdentifier":"`+identifier+`"}]}`)))
		whole, each := dispatchAll(t, newTarget(t, s.URL, inBatches("jsonl")), messagesOf(ids)...)
		if want == nil {
			t.Run(name, func(t *testing.T) {
				wantFailure(t, whole, message.FailureMalformed, "the id of one message and the index of another")
			})
			return
		}
		for i := range ids {
			if each == nil || (each[i].Disposition == message.DispositionRetry) != slices.Contains(want, i) {
				t.Errorf("%s: message %d: %+v, %+v", name, i, whole, each)
			}
		}
	}
	retried("an index without an id", []string{"a", ""}, "1", 1)
	retried("an index with an id", []string{"a", "b"}, "1", 1)
	retried("the id of several", []string{"x", "b", "x"}, "x", 0, 2)
	retried("an id that is its index", []string{"0", "b"}, "0", 0)
	retried("the id of several, an index of them", []string{"a", "1", "1"}, "1", 1, 2)
	retried("an id beyond the indexes", []string{"7", ""}, "7", 0)
	retried("an id with zeros", []string{"01", ""}, "01", 0)
	retried("an index of one without an id", []string{"1", ""}, "1")
	retried("an index of one with an id", []string{"1", "b"}, "1")
	retried("an index before the id", []string{"a", "0"}, "0")
	retried("ids in a row", []string{"1", "2", "3"}, "2")
}

// Verdicts that cannot be read are a failed batch, with an error that does not quote them.
func TestVerdictsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	lines := func(body string) string { return apptest.Full(200, body, "Content-Type: application/jsonl") }
	object := func(body string) string { return apptest.Full(200, body) }
	const good = "\n" + `{"index":0,"status":200}` + "\n\n"
	for name, row := range map[string]struct{ answer, says string }{
		"text":                  {lines("secret"), "line 1: not JSON"},
		"207 with XML":          {apptest.Full(207, "<multistatus>", "Content-Type: text/xml"), "line 1: not JSON"},
		"null":                  {lines("null"), "line 1: not a JSON object of a verdict"},
		"cut":                   {lines(good + `{"index":1,"status":2`), "line 4: JSON that is cut short"},
		"no index":              {lines(good + `{"status":500}`), "line 4: neither an index from 0 to 3 nor an identifier"},
		"index 4":               {lines(`{"index":4,"status":500}`), "neither an index"},
		"index -1":              {lines(`{"index":-1,"status":500}`), "neither an index"},
		"index 1.5":             {lines(`{"index":1.5,"status":500}`), "index has a value of another type"},
		"index as text":         {lines(`{"index":"1","status":500}`), "index has a value of another type"},
		"a huge index":          {lines(`{"index":99999999999999999999,"status":500}`), "index has a value of another type"},
		"twice":                 {lines(good + good), "line 5: a second verdict"},
		"no status":             {lines(`{"index":0}`), "neither a status nor a known disposition"},
		"only a strange word":   {lines(`{"index":0,"disposition":"secret"}`), "neither a status nor a known disposition"},
		"status 99":             {lines(`{"index":0,"status":99}`), "status is not from 100 to 599"},
		"status 600":            {lines(`{"index":0,"status":600,"disposition":"ack"}`), "status is not from 100 to 599"},
		"a negative pause":      {lines(`{"index":0,"status":503,"retry_after":-1}`), "retry_after is negative"},
		"a pause as text":       {lines(`{"index":0,"status":503,"retry_after":"5"}`), "retry_after has a value of another type"},
		"a pause of 1e999":      {lines(`{"index":0,"status":503,"retry_after":1e999}`), "retry_after has a value of another type"},
		"deep":                  {lines(`{"index":0,"status":500,"x":` + strings.Repeat("[", 30_000)), "nested too deeply"},
		"compressed":            {apptest.Full(200, "\x1f\x8b", "Content-Type: application/json", "Content-Encoding: gzip"), "compressed"},
		"compressed lines":      {apptest.Full(200, "\x1f\x8b", "Content-Type: application/jsonl", "Content-Encoding: gzip"), "compressed"},
		"compressed, +json":     {apptest.Full(200, "\x1f\x8b", "Content-Type: application/vnd.app+json; a=b", "Content-Encoding: br"), "compressed"},
		"compressed, untyped":   {apptest.Full(200, "\x1f\x8b", "Content-Encoding: gzip"), "compressed"},
		"a long array":          {object(`["` + strings.Repeat("x", int(answerLimit(4)))), "more than 69632 bytes"},
		"compressed text":       {apptest.Full(200, "\x1f\x8b", "Content-Type: text/plain", "Content-Encoding: gzip"), "compressed"},
		"compressed, two types": {apptest.Full(200, "\x1f\x8b", "Content-Type: text/plain", "Content-Type: text/html", "Content-Encoding: gzip"), "compressed"},
		"too long":              {lines(good + strings.Repeat(" ", int(answerLimit(4)))), "more than 69632 bytes, which may hold verdicts on 4 messages"},
		"a long object":         {object(`{"x":"` + strings.Repeat("x", int(answerLimit(4)))), "more than 69632 bytes"},
		"long blanks":           {object(strings.Repeat(" ", 100_000)), "more than 69632 bytes"},
		"object, cut":           {object(`{"batchItemFailures":[]`), "cut short"},
		"object, more":          {object(`{"batchItemFailures":[]} x`), "verdicts in a text that is not JSON"},
		"not an array":          {object(`{"batchItemFailures":{}}`), "not an array"},
		"a text":                {object(`{"batchItemFailures":"m-1"}`), "not an array"},
		"items of text":         {object(`{"batchItemFailures":["m-1"]}`), "item 1: not a JSON object"},
		"an empty item":         {object(`{"batchItemFailures":[{"itemIdentifier":"m-1"},{}]}`), "item 2: neither an index"},
		"a null item":           {object(`{"batchItemFailures":[null]}`), "item 1: not a JSON object"},
		"identifier 1":          {object(`{"batchItemFailures":[{"itemIdentifier":1}]}`), "itemIdentifier has a value of another type"},
		"identifier null":       {object(`{"batchItemFailures":[{"itemIdentifier":null}]}`), "itemIdentifier has a value of another type"},
		"no such identifier":    {object(`{"batchItemFailures":[{"itemIdentifier":"secret"}]}`), "an identifier of no message"},
		"no such index":         {object(`{"batchItemFailures":[{"itemIdentifier":"4"}]}`), "an identifier of no message"},
		"index with a sign":     {object(`{"batchItemFailures":[{"itemIdentifier":"+1"}]}`), "an identifier of no message"},
		"too many":              {object(`{"batchItemFailures":[` + strings.Repeat(`{"itemIdentifier":"m-1"},`, 4) + `{"itemIdentifier":"m-1"}]}`), "more verdicts than messages"},
	} {
		whole, each := answeredAll(t, row.answer, 4, func(o *Options) { o.Answer = 1024 })
		if each != nil {
			t.Fatalf("%s: %+v", name, each)
		}
		t.Run(name, func(t *testing.T) { wantFailure(t, whole, message.FailureMalformed, row.says) })
		if strings.Contains(whole.Err.Error(), "secret") || whole.RetryAfter >= 0 || whole.Answer != "" {
			t.Errorf("%s: %+v", name, whole)
		}
	}
}

// The longest answer that is read has a verdict of 1 KiB on each message.
func TestLongVerdicts(t *testing.T) {
	t.Parallel()
	const n = 100
	var body strings.Builder
	for i := range n {
		line := `{"index":` + itoa(i) + `,"status":500,"reason":"`
		body.WriteString(line + strings.Repeat("r", 1023-len(line)-2) + `"}` + "\n")
	}
	full := strings.Repeat("\n", http1.MaxBody) + body.String()
	for framing, raw := range framings(full) {
		_, each := answeredAll(t, "HTTP/1.1 207 M\r\n"+raw, n)
		if len(each) != n || each[n-1].Status != 500 {
			t.Errorf("by %s: %d outcomes", framing, len(each))
		}
	}
	for framing, raw := range framings(full + " ") {
		whole, _ := answeredAll(t, "HTTP/1.1 207 M\r\n"+raw, n)
		wantFailure(t, whole, message.FailureMalformed, "more than 167936 bytes")
		_ = framing
	}
}

// A cut between two lines does not show where nothing but the end of the connection ends an answer.
func TestVerdictsWithoutLength(t *testing.T) {
	t.Parallel()
	const noLength = "neither a Content-Length nor chunks"
	for answer, says := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\n\r\n{\"index\":0,\"status\":503}\n": noLength,
		"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n":                                noLength,
		"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n {\"batchItemFailures\":[]}":     "",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":                "a Transfer-Encoding that is not understood",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":          "a Transfer-Encoding that is not understood",
		"HTTP/1.0 207 OK\r\n\r\n":                 noLength,
		"HTTP/1.0 200 OK\r\n\r\n{\"ok\":true}":    "",
		"HTTP/1.0 200 OK\r\n\r\n":                 "",
		"HTTP/1.0 200 OK\r\n\r\n{\"batchItemFail": "cut short",
	} {
		s := apptest.Listen(t, apptest.AnswerAndClose(answer))
		whole, each := dispatchAll(t, newTarget(t, s.URL, inBatches("jsonl")), samples(2)...)
		if says != "" {
			wantFailure(t, whole, message.FailureMalformed, says)
		}
		if (each == nil) != (says != "") {
			t.Errorf("%q: %+v", answer, each)
		}
	}
}

// Half an answer is no answer where it may have verdicts.
func TestVerdictsThatBreakOff(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.AnswerAndClose("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"index\":0"))
	whole, each := dispatchAll(t, newTarget(t, s.URL, inBatches("jsonl")), samples(2)...)
	wantFailure(t, whole, message.FailureReset, "within the answer's body")
	if each != nil {
		t.Error(each)
	}
	hold := make(chan struct{})
	defer close(hold)
	silent := apptest.Listen(t, func(c *apptest.Conn) {
		_, _ = c.Next()
		c.Send("HTTP/1.1 207 M\r\nContent-Length: 40\r\n\r\n{")
		<-hold
	})
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { stop(errors.New("drain")) })
	whole, _ = newTarget(t, silent.URL, inBatches("jsonl")).DispatchBatch(ctx, samples(2), message.TraceContext{})
	wantFailure(t, whole, message.FailureInterrupted, "drain")
}
