package outbox

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/broker"
)

// FuzzRow makes the message of a row with any texts in its columns. It fails with ErrInvalid, or each column that is
// decoded fits a frame. It allocates at most four times the cost of the row, garbage included: the cost is three times
// the bytes, and 100 times those of JSON, up to 1.1 MiB for each column.
func FuzzRow(f *testing.F) {
	f.Add([]byte("body"), "", "orders", `{"a":[1,-0.5,"x\u00e9",null,true,{"b":{}}],"CC":[]}`, `{"type":"t","priority":9,"timestamp":"2026-01-31T12:00:00Z"}`, "id", `["a","b"]`)
	f.Add([]byte(nil), "amq.default", "k", `{"x-outbox-tracking-ids":["a"],"":{"":{"":0}}}`, `{"user_id":"guest"}`, "", "null")
	f.Add([]byte(nil), "e", strings.Repeat("k", 256), "[1]", `{"expiration":60000}`, "", `[1]`)
	f.Add([]byte(nil), "e", "k", `{"a":[`+strings.Repeat(`{"":0},`, 3000)+`0]}`, `{"app_id":null}`, "", `[[]]`)
	s := &session{r: New(Options{Exchange: "outbox"}), table: &Table{}}
	f.Fuzz(func(t *testing.T, body []byte, exchange, key, headers, properties, id, tracking string) {
		columns := [][]byte{body}
		others := 0
		for _, text := range []string{exchange, key, headers, properties, id, tracking} {
			others += len(text)
			if text == "" {
				columns = append(columns, nil)
			} else {
				columns = append(columns, []byte(text))
			}
		}
		columns = append(columns, []byte("1"), nil)
		x := &row{id: "1", size: len(body), others: others}
		const process = 64 << 10 // the errors' texts, and what the fuzzer itself allocates meanwhile
		var err error
		var took uint64
		limit := 4*uint64(cost(len(body), others)) + process
		for n := 0; n == 0 || n < 5 && took > limit; n++ { // the fuzzer may allocate more than that, but not each time
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = (&publishing{s: s}).fill(x, columns)
			runtime.ReadMemStats(&after)
			took = after.TotalAlloc - before.TotalAlloc
		}
		if took > limit {
			t.Errorf("%d bytes of body and %d of other columns took %d bytes", len(body), others, took)
		}
		if err != nil {
			if !errors.Is(err, broker.ErrInvalid) || len(errorText(err)) > maxError+len(" …") {
				t.Error(err)
			}
			return
		}
		m := &x.pub.Msg
		const most = 3*(128<<10) + 1024 // of each column that is decoded as much as fits a frame
		if size, err := amqpvalue.TableSize(m.Headers); err == nil && size > most {
			t.Errorf("%d bytes of headers", size)
		}
		if m.UserId != "" || m.DeliveryMode != 0 || m.MessageId == "" || len(x.pub.Exchange) > amqpvalue.ShortMax || len(x.pub.Key) > amqpvalue.ShortMax || string(m.Body) != string(body) {
			t.Errorf("%+v", x.pub)
		}
	})
}
