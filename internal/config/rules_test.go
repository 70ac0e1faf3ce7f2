package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// TestTagsAreKept: the value before the range of a variable, the one behind it, and one that is not among its words are
// refused with what is allowed; the ends of the range are not out of it. docs/configuration.md says the same tags, and a
// test of scripts/gendoc compares it with them.
func TestTagsAreKept(t *testing.T) {
	t.Parallel()
	for _, s := range sections(&Config{}) {
		for _, v := range s.Variables {
			if words, found := v.Tag.Lookup("oneof"); found {
				word, _, _ := strings.Cut(words, "|")
				refuseSaying(t, "not one of the words; allowed: "+v.Allowed(plain), v.Name, collector, v.Name+"="+strings.ToUpper(word))
			}
			bounds, found := v.Tag.Lookup("range")
			if !found {
				continue
			}
			low, high := v.bounds(bounds)
			step := int64(1)
			if v.value.Type() == reflect.TypeFor[Millis]() {
				step = int64(time.Millisecond)
			}
			for _, n := range []int64{low - step, high + step} {
				refuseSaying(t, "; allowed: "+v.Allowed(plain), v.Name, collector, v.Name+"="+v.texted(n))
			}
			for _, n := range []int64{low, high} {
				_, err := Load([]string{"SIDECAR_SERVICE=a-b", collector, v.Name + "=" + v.texted(n)}, 0)
				if err != nil && strings.Contains(err.Error(), "out of range") {
					t.Errorf("%d: %v", n, err)
				}
			}
		}
	}
}

// texted is a number as it is set: the opposite of numbers.
func (v *Variable) texted(n int64) string {
	switch v.value.Type() {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[[]time.Duration]():
		return time.Duration(n).String()
	case reflect.TypeFor[Millis]():
		return strconv.FormatInt(n/int64(time.Millisecond), 10)
	}
	return strconv.FormatInt(n, 10)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "1": 1, "1000": 1000, "1KiB": 1024, "1024": 1024, "3MiB": 3 << 20, "2GiB": 2 << 30} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%s prints as %s", text, got)
		}
	}
}

// TestQueriesAreMasked: a key in the query of a URL is shown neither by what is in effect nor by a problem, in the
// right place or not.
func TestQueriesAreMasked(t *testing.T) {
	t.Parallel()
	env := []string{
		"SIDECAR_APP_URL=http://127.0.0.1:8080/in?key=" + canary, "SIDECAR_APP_HEALTH_PATH=/up?key=" + canary, "OTEL_SDK_DISABLED=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector?key=" + canary,
	}
	c := load(t, env...)
	text := fmt.Sprint(c.Effective(), c.Warnings())
	for _, want := range []string{"http://127.0.0.1:8080/in?*** ", "/up?*** ", "http://collector?*** "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, wrong := range []string{
		"SIDECAR_APP_URL=127.0.0.1:8080?key=" + canary, "SIDECAR_APP_URL=http://127.0.0.1/#" + canary, "SIDECAR_APP_URL=http://u:" + canary + "@h/",
		"SIDECAR_APP_HEALTH_PATH=up?key=" + canary, "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector?key=" + canary,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector/?key=" + canary,
	} {
		_, err := Load([]string{"SIDECAR_SERVICE=a-b", wrong}, 0)
		if err == nil || !strings.Contains(err.Error(), masked) {
			t.Errorf("%s: %v", wrong, err)
		}
		text += fmt.Sprint(err)
	}
	if strings.Contains(text, canary) {
		t.Errorf("a key is shown: %s", text)
	}
}

// shows demands that these settings are among the effective ones of c, none of which is there twice.
func shows(t *testing.T, c *Config, all []Setting) {
	t.Helper()
	got := map[string]Setting{}
	for _, s := range c.Effective() {
		if _, twice := got[s.Name]; twice {
			t.Errorf("%s is there twice", s.Name)
		}
		s.Changed = false // a test of the commands reads it
		got[s.Name] = s
	}
	for _, want := range all {
		if got[want.Name] != want {
			t.Errorf("got %+v, want %+v", got[want.Name], want)
		}
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "0123456789abcdef\n")
	c := load(
		t, "SIDECAR_AMQP_URL=amqps://me:"+canary+"@rabbit:5671/prod%2Fa, amqp://127.0.0.1", "SIDECAR_CONCURRENCY=8", "SIDECAR_APP_TIMEOUT=90s",
		"SIDECAR_CONTROL_TOKEN_FILE="+file, "SIDECAR_APP_TOKEN="+canary, "SIDECAR_MAX_RETRIES=3",
		"SIDECAR_MANAGEMENT_URL=https://me:"+canary+"%2Ca@rabbit:15671/x",
	)
	shows(t, c, []Setting{
		{Name: "SIDECAR_SERVICE", Value: "wms-cincout", Origin: "environment"},
		{Name: "SIDECAR_AMQP_URL", Value: "amqps://***@rabbit:5671/prod%2Fa,amqp://127.0.0.1", Origin: "environment"},
		{Name: "SIDECAR_AMQP_PASSWORD", Value: "", Origin: "default"},
		{Name: "SIDECAR_MANAGEMENT_URL", Value: "https://***@rabbit:15671/x", Origin: "environment"},
		{Name: "SIDECAR_APP_TIMEOUT", Value: "90s", Origin: "environment"},
		{Name: "SIDECAR_APP_TOKEN", Value: "***", Origin: "environment"},
		{Name: "SIDECAR_CONTROL_TOKEN", Value: "***", Origin: "file:" + file},
		{Name: "SIDECAR_PREFETCH", Value: "16", Origin: "derived"},
		{Name: "SIDECAR_PREFIX", Value: "", Origin: "derived"},
		{Name: "SIDECAR_MAX_RETRIES", Value: "3", Origin: "environment"},
		{Name: "SIDECAR_RETRY_DELAY", Value: "", Origin: "preset"},
		{Name: "SIDECAR_QUEUE", Value: "", Origin: "preset"},
		{Name: "SIDECAR_MESSAGE_TTL", Value: "", Origin: "default"},
		{Name: "OTEL_EXPORTER_OTLP_TIMEOUT", Value: "10000", Origin: "default"},
	})
	if all := c.Effective(); all[0].Name != "SIDECAR_SERVICE" {
		t.Errorf("starts with %+v", all[0])
	}
	for _, s := range c.Effective() { // a secret of a file has no text here
		if want := s.Origin == "environment" || strings.HasPrefix(s.Origin, "file:"); s.Changed != want {
			t.Errorf("%+v: changed", s)
		}
	}
	if got := load(t).Effective()[3]; got.Value != "amqp://***@127.0.0.1:5672/" {
		t.Errorf("got %+v", got)
	}
	if got := redactURLs("amqp://u:" + canary + "%zz@h"); got != masked {
		t.Errorf("got %q for what is no URL", got)
	}
	if got := redactURL("https://u,v:p,w@h"); got != "https://***@h" {
		t.Errorf("got %q for a URL with commas", got)
	}
	if got := load(t, "SIDECAR_AMQP_URL=amqp://h").Effective()[3]; got.Value != "amqp://h" {
		t.Errorf("got %+v", got)
	}
}

// TestChartSchema: the schema of the chart's values takes durations, sizes, rates and addresses that the sidecar takes,
// and refuses the others. A value that is out of range may pass: that depends on the variable.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	var schema struct {
		Definitions map[string]struct{ Pattern string }
	}
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("../../deploy/helm/amqp-sidecar/values.schema.json"))(t), &schema))
	const good, bad = true, false
	for definition, tc := range map[string]struct {
		parse  func(string) error
		values map[string]bool
	}{
		"duration": {parses(parseDuration), map[string]bool{
			"1s": good, "1m30s": good, "1.5h": good, ".5s": good, "1.s": good, "100us": good, "100µs": good, "100μs": good, "5ns": good, "+5s": good, "-5s": good, "007ms": good,
			"0s": good, "0": bad, "+0": bad, "5": bad, "5 s": bad, " 5s": bad, "5S": bad, "s": bad, ".s": bad, "1d": bad, "1m30": bad, "1,5s": bad, "1e3s": bad, "5s\n": bad,
		}},
		"durations": {parses(parseDelays), map[string]bool{
			"none": good, "5s": good, "5s,1m": good, "5s, 1m ,2h": good, "5s,": bad, ",5s": bad, "5,1m": bad, "5s 1m": bad, "none,5s": bad, "None": bad,
		}},
		"size": {parses(ParseSize), map[string]bool{
			"0": good, "16MiB": good, "1GiB": good, "1KiB": good, "1048576": good, "007": good, "16MB": bad, "16M": bad, "16Mi": bad, "16 MiB": bad, "1.5MiB": bad, "16mib": bad,
			"MiB": bad, "-1": bad, "+1": bad, "1e3": bad, "1_000": bad, "0x10": bad, "16MiBKiB": bad,
		}},
		"rate": {parses(parseRate), map[string]bool{
			"1/s": good, "30/m": good, "500/h": good, "1000000/s": good, "010/s": good, "1000001/s": bad, "0/s": bad, "100": bad, "/s": bad, "100/d": bad, "1.5/s": bad, "-1/s": bad,
		}},
		"address": {checkAddr, map[string]bool{
			":9090": good, "[::1]:9091": good, "localhost:0": good, "h:65535": good, "h:0080": good, "127.0.0.1": bad, "9091": bad, "h:65536": bad, "h:http": bad, "h:": bad, "http://h:80": bad,
		}},
	} {
		pattern := regexp.MustCompile(schema.Definitions[definition].Pattern)
		if !pattern.MatchString("") {
			t.Errorf("%s: the schema refuses the empty value, which is the default", definition)
		}
		for value, want := range tc.values {
			if err := tc.parse(value); (err == nil) != want || pattern.MatchString(value) != want {
				t.Errorf("%s %q: the sidecar says %v, the schema matches: %v, want both: %v", definition, value, err, pattern.MatchString(value), want)
			}
		}
	}
}
