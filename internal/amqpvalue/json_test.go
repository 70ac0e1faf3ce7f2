package amqpvalue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

func TestParseTable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]amqp.Table{
		" null ": nil,
		"{}":     {},
		`{ "a" : 1 , "B":-0.5, "c":true,"d":false,"e":null,"f":"x" }`:                                       {"a": int64(1), "B": -0.5, "c": true, "d": false, "e": nil, "f": "x"},
		`{"":"","é\"\\":"\\\"\u00e9é\ud83d\ude00"}`:                                                         {"": "", `é"\`: `\"éé😀`},
		`{"l":[ ],"m":[1,"a\\",[],{"":[]},null],"t":{"l":{"n":1e3}}}`:                                       {"l": []any{}, "m": []any{int64(1), `a\`, []any{}, amqp.Table{"": []any{}}, nil}, "t": amqp.Table{"l": amqp.Table{"n": 1e3}}},
		`{"x-death":[{"a":1,"a":2}],"CC":"x","bcc":["x"],"a":9223372036854775808,"b":-9223372036854775808}`: {"a": float64(1 << 63), "b": int64(math.MinInt64)},
		`{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`:                                   {"a": nested(32)},
	} {
		got, _, err := amqpvalue.ParseTable([]byte(text), message.Reserved)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %v, %v", text, got, err)
		}
	}
}

func nested(depth int) any {
	list := []any{}
	for range depth - 1 {
		list = []any{list}
	}
	return list
}

// many writes n parts, each with its number.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestParseTableRefuses: what is wrong is said, with the name of the header.
func TestParseTableRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"a":}`, "invalid character '}' looking for beginning of value"},
		{`{"a":1} 2`, "invalid character '2' after top-level value"},
		{"", "unexpected end of JSON input"},
		{`[1]`, "not a JSON object"},
		{`{"a":1,"\u0061":2}`, `header "a": the name "a" is there twice`},
		{`{"a":[{"b":1,"b":1}]}`, `header "a": the name "b" is there twice`},
		{`{"a":1e400}`, `header "a": the number 1e400 is too large for AMQP`},
		{`{"a":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`, `header "a": nested more than 32 deep`},
		{`{"a":1,"b":"` + strings.Repeat("x", 128<<10) + `"}`, `header "b": with everything before it too large for a frame of 131072 bytes`},
		{`{"` + strings.Repeat("x", 128<<10) + `":1}`, `": with everything before it too large for a frame of 131072 bytes`},
		{`{"a":[` + many(14600, "%d,") + `0]}`, `header "a": with everything before it too large for a frame`},
		{`{"a":[` + strings.Repeat(`[],`, 20000) + `0]}`, `header "a": with everything before it more than 1048576 bytes in memory`},
		{`{` + many(9000, `"k%d":null,`) + `"":0}`, ` with everything before it more than 1048576 bytes in memory`},
		{strings.Repeat(" ", 768<<10) + "{}", "786434 bytes of JSON cannot fit a frame of 131072 bytes"},
	} {
		got, _, err := amqpvalue.ParseTable([]byte(c.text), message.Reserved)
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
			t.Errorf("%.60s: %v, want %s", c.text, err, c.want)
		}
	}
}

// FuzzJSON reads any text, and compares the value with what package json reads. What is read fits a frame, and has
// taken no more memory than JSONCost says.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,-0.5,"x\u00e9",null,true,{"b":{}}],"x-death":{},"c":"\\\""}`))
	for _, text := range []string{` [ "\ud800" , 1e400 ] `, "-7", "1.5", " true ", `"a\n"`, "null", "", "1 2", "{} x", "1e999", strings.Repeat("[", 34) + strings.Repeat("]", 34)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := amqpvalue.ParseValue(text)
		if table, cost, failed := amqpvalue.ParseTable(text, message.Reserved); failed == nil {
			if cost > amqpvalue.JSONCost(len(text)) {
				t.Fatalf("%d bytes of JSON cost %d", len(text), cost)
			}
			if size, err := amqpvalue.TableSize(table); size > 128<<10 && err == nil {
				t.Fatalf("%d bytes", size)
			}
			for name := range table {
				if message.Reserved(name) {
					t.Fatalf("%q was read", name)
				}
			}
		}
		if err != nil {
			if _, failed := amqpvalue.DecodeJSON(text); json.Valid(text) != (failed == nil) {
				t.Fatal(err)
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if !same(value, want) {
			t.Fatalf("%s became %v, want %v", text, value, want)
		}
	})
}

// same reports whether a value of AMQP is what package json has read, but for texts that are not UTF-8.
func same(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		t, ok := got.(amqp.Table)
		for name, v := range want {
			if u, found := t[name]; !found && !strings.ContainsRune(name, '\ufffd') || found && !same(u, v) {
				return false
			}
		}
		return ok && len(t) >= len(want)
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return false
		}
		for i := range l {
			if !same(l[i], want[i]) {
				return false
			}
		}
		return true
	case json.Number:
		f, _ := want.Float64()
		switch n := got.(type) {
		case int64:
			return float64(n) == f
		case float64:
			return n == f
		}
		return false
	case string:
		s, ok := got.(string)
		return ok && strings.ToValidUTF8(s, "\ufffd") == strings.ToValidUTF8(want, "\ufffd") || ok && strings.ContainsRune(want, '\ufffd')
	}
	return got == want
}

// TestCostOfDecodedJSON: what is read takes no more memory than JSONCost says, and reading leaves no more than four
// times that to the garbage collector.
func TestCostOfDecodedJSON(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	list := func(of string) func(int) string {
		return func(n int) string { return `{"a":[` + strings.Repeat(of+",", n) + `0]}` }
	}
	distinct := func(format string) func(int) string {
		return func(n int) string { return "{" + many(n, format) + `"":0}` }
	}
	for name, text := range map[string]func(int) string{
		"tables": list(`{"":0}`), "empty tables": list("{}"), "lists": list("[]"), "lists of one": list("[0]"), "numbers": list("7"), "large numbers": list("1234567"),
		"texts": list(`""`), "short texts": list(`"a"`), "texts of 17": list(`"aaaaaaaaaaaaaaaaa"`), "nulls": list("null"), "tables of nine": list(`{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0}`),
		"headers": distinct(`"%d":0,`), "header texts": distinct(`"%d":"a",`), "header tables": distinct(`"%d":{"":0},`), "header lists": distinct(`"%d":[],`),
		"deep": list(strings.Repeat("[", 30) + strings.Repeat("]", 30)), "deep tables": list(strings.Repeat(`{"":`, 30) + "0" + strings.Repeat("}", 30)),
		"escapes": list(`"\u0041\u0041\u0041\u0041"`), "one text": func(n int) string { return `{"a":"` + strings.Repeat("a", 16*n) + `"}` },
	} {
		worst := 0.0
		for n := 1; n < 20000; n = n*2 + 1 {
			raw := []byte(text(n))
			cost := amqpvalue.JSONCost(len(raw))
			held, total := memory(func() any {
				table, counted, err := amqpvalue.ParseTable(raw, message.Reserved)
				if err == nil && counted < cost {
					cost = counted
				}
				return table
			})
			if held > cost+noise || total > 4*cost+noise {
				t.Errorf("%s: %d bytes of JSON took %d and %d in all, JSONCost is %d", name, len(raw), held, total, cost)
			}
			worst = max(worst, float64(held)/float64(len(raw)))
		}
		t.Logf("%s: %.1f bytes for a byte", name, worst)
	}
}

const noise = 32 << 10 // what the runtime itself allocates meanwhile

// memory is how many bytes the value of f holds, and how many were allocated for it.
func memory(f func() any) (held, total int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc), int64(after.TotalAlloc - before.TotalAlloc)
}
