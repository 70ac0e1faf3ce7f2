package topology

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// TestParkedAlwaysFits is the property that keeps a message from being tried for ever: whatever headers it has, what
// is parked fits one frame, keeps every header of ours and loses no more of its own than it has to.
func TestParkedAlwaysFits(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	long := strings.Repeat("ü", 512)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := arrived(func(m *message.Message) { m.Headers = randomHeaders(r, 131072) })
		cause := message.Outcome{Failure: message.FailureReset, Err: fmt.Errorf("%s", long), Detail: long[:256], At: time.Now()}
		if r.IntN(2) == 0 {
			cause.Answer = strings.Repeat("a\nü", 1024)
		}
		if r.IntN(2) == 0 {
			cause.Problem = &message.Problem{Type: long, Title: long, Detail: long}
		}
		pub := p.Settlement(m, message.Verdict{Action: message.Park, Reason: message.ReasonMaxRetries, Cause: cause}).Publish
		if size := HeaderFrameSize(&pub.Msg); size > FrameMax-parkReserve {
			t.Fatalf("seed %d: frame of %d bytes", seed, size)
		}
		checkLosses(t, seed, m, &pub.Msg, cause.Problem != nil)
		if answer, _ := pub.Msg.Headers["x-final-answer"].(string); (answer != "") != (cause.Answer != "") || !strings.HasPrefix(cause.Answer, answer) {
			t.Fatalf("seed %d: the answer is %d bytes", seed, len(answer))
		}
	}
}

func checkLosses(t *testing.T, seed uint64, m *message.Message, pub *amqp.Publishing, problem bool) {
	t.Helper()
	h := pub.Headers
	for _, key := range []string{"x-original-queue", "x-original-exchange", "x-original-routing-key", "x-final-reason", "x-final-retry-count", "x-final-error", "x-final-detail", "x-final-at"} {
		if h[key] == nil {
			t.Fatalf("seed %d: %s is gone", seed, key)
		}
	}
	if problem && h["x-final-problem-detail"] == nil {
		t.Fatalf("seed %d: the problem is gone", seed)
	}
	lost, smallest := 0, 1<<30
	for k, v := range m.Headers {
		if _, there := h[k]; !there {
			lost++
			smallest = min(smallest, entrySize(k, v))
		}
	}
	if marker, _ := h["x-final-headers-dropped"].(int32); int(marker) != lost {
		t.Fatalf("seed %d: %d headers lost, %v counted", seed, lost, h["x-final-headers-dropped"])
	}
	if lost > 0 && HeaderFrameSize(pub)+smallest <= FrameMax-parkReserve {
		t.Fatalf("seed %d: a header of %d bytes was dropped although it fits", seed, smallest)
	}
	for _, key := range cuttable {
		if s, ok := h[key].(string); ok && (!utf8.ValidString(s) || len(s) < shortText-3) {
			t.Fatalf("seed %d: %s was cut to %q", seed, key, s)
		}
	}
}

// randomHeaders makes a table of at most size bytes, often close to it.
func randomHeaders(r *rand.Rand, size int) amqp.Table {
	h := amqp.Table{}
	room := size - r.IntN(6000)
	if r.IntN(8) == 0 {
		room = r.IntN(size)
	}
	for i := 0; room > 64; i++ {
		n := 1 + r.IntN(min(room-60, []int{100, 5000, 131072}[r.IntN(3)]))
		key := fmt.Sprintf("h%d", i)
		switch r.IntN(4) {
		case 0:
			h[key] = make([]byte, n)
		case 1:
			h[key] = amqp.Table{"nested": []any{strings.Repeat("x", max(n-20, 0)), nil}}
		default:
			h[key] = strings.Repeat("x", n)
		}
		room -= entrySize(key, h[key])
	}
	return h
}

// TestTextsAreCutBeforeHeadersAreDropped: the message's own headers are worth more than our prose.
func TestTextsAreCutBeforeHeadersAreDropped(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	long := strings.Repeat("x", 1024)
	v := message.Verdict{Action: message.Park, Cause: message.Outcome{Status: 500, Problem: &message.Problem{Type: long, Title: long, Detail: long}}}
	m := arrived(func(m *message.Message) { m.Headers = amqp.Table{"mine": strings.Repeat("m", 127000)} })
	h := p.Settlement(m, v).Publish.Msg.Headers
	if h["mine"] == nil || h["x-final-headers-dropped"] != nil {
		t.Error("the message's header was dropped although shorter texts would do")
	}
	if detail, _ := h["x-final-problem-detail"].(string); len(detail) >= 1024 || h["x-final-problem-type"] == nil {
		t.Errorf("detail has %d bytes", len(detail))
	}
	v.Cause.Answer, m.Headers["mine"] = strings.Repeat("a", 4096), strings.Repeat("m", 126000)
	h = p.Settlement(m, v).Publish.Msg.Headers
	if answer, _ := h["x-final-answer"].(string); len(answer) >= 4096 || len(answer) < shortText || h["x-final-problem-detail"] != long || h["mine"] == nil {
		t.Errorf("an answer of %d bytes before %d of the problem", len(answer), len(fmt.Sprint(h["x-final-problem-detail"])))
	}
}

// filled makes properties whose frame has at most size bytes: one less, for the user id that is not set.
func filled(size int) amqp.Publishing {
	pub := amqp.Publishing{
		DeliveryMode: amqp.Persistent, ContentType: "a/b", MessageId: "id", Priority: 1, Type: "t", ContentEncoding: "e",
		CorrelationId: "c", ReplyTo: "r", Expiration: "3600000", AppId: "a", Timestamp: time.Unix(1, 0),
		Headers: amqp.Table{
			"i8": int8(1), "u8": uint8(1), "i16": int16(1), "u16": uint16(1), "i32": int32(1), "u32": uint32(1), "i64": int64(1),
			"f": float32(1), "d": 1.5, "t": true, "v": nil, "b": []byte{1, 2}, "dec": amqp.Decimal{Scale: 1, Value: 2},
			"a": []any{"x", int32(1), amqp.Table{"k": "v"}}, "fill": "",
		},
	}
	pub.Headers["fill"] = strings.Repeat("x", size-HeaderFrameSize(&pub))
	return pub
}

// TestFrameSizeIsExact: our arithmetic is the broker's. It forgives the eight bytes around a frame and nothing more.
func TestFrameSizeIsExact(t *testing.T) {
	t.Parallel()
	const forgiven = 8 + 1 // the user id
	url := brokertest.URL(t)
	queue := brokertest.Queue(t, url, "q", nil)
	brokertest.Publish(t, brokertest.Channel(t, url), "", queue, filled(FrameMax))
	d := brokertest.Get(t, url, queue, time.Minute)
	if len(d.Headers) != 15 {
		t.Errorf("%d headers returned", len(d.Headers))
	}
	brokertest.Publish(t, brokertest.Channel(t, url), "", queue, filled(FrameMax+forgiven))

	conn := brokertest.Conn(t, url)
	ch := must.Get(conn.Channel())(t)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	must.Do(t, ch.Publish("", queue, true, false, filled(FrameMax+forgiven+1)))
	select {
	case err := <-closed:
		if err == nil || err.Code != amqp.FrameError {
			t.Errorf("one byte more: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("one byte more was taken")
	}
}
