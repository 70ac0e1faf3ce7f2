package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestReleaseForgetsTheMessage(t *testing.T) { //nolint:paralleltest // reads what it gave back to the pool
	target := newTarget(t, "http://127.0.0.1:1/")
	m := withHeaders(sample(), amqp.Table{"tenant": "acme"})
	x := newAttempt(target, time.Time{})
	x.request.encode(target, m, "")
	_ = x.exchange.Answer.Read(strings.NewReader("HTTP/1.1 422 X\r\nAmqp-Reason: r\r\nContent-Length: 0\r\n\r\n"), &x.answer)
	x.release()
	for _, k := range x.request.keys {
		if k != "" {
			t.Errorf("kept the key %q", k)
		}
	}
	if fmt.Sprint(x.answer) != fmt.Sprint(answer{}) || x.out.Status != 0 {
		t.Errorf("kept %+v, %+v", x.answer, x.out)
	}
}
