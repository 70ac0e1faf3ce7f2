package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

const canary = "canary-7b1f"

func write(t testing.TB, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}

func wantValue(t testing.TB, s Secret, want string) {
	t.Helper()
	if v, err := s.Value(); err != nil || v != want {
		t.Errorf("got %.20q, want %.20q: %v", v, want, err)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	wantValue(t, Secret{}, "")
	s := newSecret(&source{value: canary})
	type holder struct {
		Exported   Secret
		unexported Secret
		list       []Secret
	}
	h := holder{s, s, []Secret{s}}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "secret", s, "holder", h, "pointer", &s)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "holder", h)
	j := must.Get(json.Marshal(map[string]any{"s": s, "h": h, "p": &s}))(t)
	printed := []string{log.String(), string(j), fmt.Sprint(s, &s, h, &h, fmt.Errorf("x: %v", s))}
	for _, verb := range "vdsqxXboOUtTeEfFgGcpwz" {
		for _, flags := range []string{"", "+", "#", "-20", "020", " ", ".3"} {
			printed = append(printed, fmt.Sprintf("%"+flags+string(verb), s), fmt.Sprintf("%"+flags+string(verb), h), fmt.Sprintf("%"+flags+string(verb), &h))
		}
	}
	hex, numbers := fmt.Sprintf("%x", canary), fmt.Sprintf("%d", []byte(canary))
	for _, p := range printed {
		if strings.Contains(p, canary) || strings.Contains(strings.ToLower(p), hex) || strings.Contains(p, numbers) {
			t.Errorf("the secret shows: %s", p)
		}
	}
	if fmt.Sprintf("%v %s %q %#v", s, s, s, s) != "*** *** *** ***" {
		t.Errorf("got %s", fmt.Sprintf("%v %s %q %#v", s, s, s, s))
	}
	if !strings.Contains(string(j), `"s":"***"`) {
		t.Errorf("JSON: %s", j)
	}
}

func TestConfigPrintsNoSecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "0123456789"+canary)
	c := load(
		t, "SIDECAR_AMQP_URL=amqp://u:"+canary+"@h/", "SIDECAR_AMQP_USERNAME="+canary, "SIDECAR_AMQP_PASSWORD="+canary, "SIDECAR_APP_TOKEN="+canary,
		"SIDECAR_MANAGEMENT_URL=https://u:"+canary+"@h/",
		"SIDECAR_CONTROL_TOKEN_FILE="+file, "OTEL_EXPORTER_OTLP_HEADERS=key="+canary, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318",
	)
	text := fmt.Sprintf("%v %+v %#v %+v %+v %q", c, *c, *c, c.Tracing, c.Effective(), c.Warnings())
	if strings.Contains(text, canary) {
		t.Errorf("a secret shows in %s", text)
	}
	wantValue(t, c.AMQP.Password, canary)
	if h := c.Tracing.Headers(); h["key"] != canary {
		t.Errorf("got headers %q", h)
	}
	wantValue(t, c.Listen.ControlToken, "0123456789"+canary)
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"pw": "pw", "pw\n": "pw", "pw\r\n": "pw", "pw\n\n": "pw\n", " pw ": " pw ", "p@:/?#[]%": "p@:/?#[]%",
		strings.Repeat("x", maxSecret): strings.Repeat("x", maxSecret),
	} {
		file := filepath.Join(t.TempDir(), "f")
		write(t, file, content)
		c := load(t, "SIDECAR_AMQP_PASSWORD_FILE="+file)
		wantValue(t, c.AMQP.Password, want)
	}
}

// TestSecretFileAsKubernetesMountsIt replaces the whole directory behind a symbolic link, as the kubelet does.
func TestSecretFileAsKubernetesMountsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for version, pw := range map[string]string{"..1": "first", "..2": "again"} { // of one length
		must.Do(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "password"), pw)
	}
	point := func(version string) {
		tmp := filepath.Join(dir, "..data_tmp")
		must.Do(t, os.Symlink(version, tmp))
		must.Do(t, os.Rename(tmp, filepath.Join(dir, "..data")))
	}
	point("..1")
	must.Do(t, os.Symlink(filepath.Join("..data", "password"), filepath.Join(dir, "password")))
	c := load(t, "SIDECAR_AMQP_PASSWORD_FILE="+filepath.Join(dir, "password"))
	wantValue(t, c.AMQP.Password, "first")
	point("..2")
	wantValue(t, c.AMQP.Password, "again")
}

func TestSecretFileIsReadAgainOnlyWhenItChanged(t *testing.T) { //nolint:paralleltest // counts allocations
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "0000000000000001")
	old := time.Now().Add(-time.Hour)
	must.Do(t, os.Chtimes(file, old, old))
	s := load(t, "SIDECAR_CONTROL_TOKEN_FILE="+file).Listen.ControlToken
	write(t, file, "0000000000000002") // in place, then dressed up as unchanged
	must.Do(t, os.Chtimes(file, old, old))
	wantValue(t, s, "0000000000000001")
	if allocs := testing.AllocsPerRun(100, func() { _, _ = s.Value() }); allocs > 4 {
		t.Errorf("%v allocations for an unchanged file", allocs)
	}
	write(t, file, "0000000000000003")
	wantValue(t, s, "0000000000000003")
	info := must.Get(os.Stat(file))(t)
	write(t, file, "0000000000000004") // of the same size, within the clock tick
	must.Do(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	wantValue(t, s, "0000000000000004")
}

func TestSecretFileGoneBadKeepsTheLastGoodValue(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "amqp://u:"+canary+"@h/")
	c := load(t, "SIDECAR_AMQP_URL_FILE="+file)
	for _, content := range []string{"amqp://u:" + canary + "@h:0/", "http://" + canary, "", strings.Repeat(canary, maxSecret)} {
		write(t, file, content)
		v, err := c.AMQP.URL.Value()
		if err == nil || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "SIDECAR_AMQP_URL_FILE") {
			t.Errorf("%.20q: %v", content, err)
		}
		if v != "amqp://u:"+canary+"@h/" {
			t.Errorf("%.20q: lost the last good value, got %q", content, v)
		}
		if urls, err := c.AMQP.URLs(); err == nil || urls != nil {
			t.Errorf("%.20q: URLs gives %q, %v", content, urls, err)
		}
	}
	write(t, file, "amqp://a, amqp://b\n")
	if urls, err := c.AMQP.URLs(); err != nil || len(urls) != 2 || urls[1] != "amqp://b" {
		t.Errorf("URLs gives %q, %v", urls, err)
	}
}

func TestSecretFileRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("empty"), "")
	write(t, at("newline"), "\n")
	write(t, at("large"), strings.Repeat("x", maxSecret+1))
	write(t, at("nul"), canary+"\x00")
	must.Do(t, syscall.Mkfifo(at("fifo"), 0o600))
	l := must.Get(net.Listen("unix", at("socket")))(t)
	defer func() { _ = l.Close() }()
	must.Do(t, os.Symlink(at("nowhere"), at("dangling")))
	must.Do(t, os.Symlink(at("loop"), at("loop")))
	for path, says := range map[string]string{
		at("none"): "no such file", at("dangling"): "no such file", at("loop"): "too many levels", dir: "must be a regular file",
		at("fifo"): "must be a regular file", at("socket"): "a pipe, a device or a socket", "/dev/zero": "must be a regular file", at("large"): "larger than 64KiB",
		at("empty"): "is empty", at("newline"): "is empty", at("nul"): "NUL", at("empty") + "/x": "not a directory",
		canary: "SIDECAR_AMQP_PASSWORD_FILE=***: ", // the password itself, in the wrong variable
	} {
		refuseSaying(t, says, "SIDECAR_AMQP_PASSWORD_FILE", "SIDECAR_AMQP_PASSWORD_FILE="+path)
	}
	// A file that holds something else is not shown: neither a token with a line break nor a list of URLs is one.
	for _, variable := range []string{"SIDECAR_APP_TOKEN_FILE", "SIDECAR_AMQP_URL_FILE", "SIDECAR_CONTROL_TOKEN_FILE", "SIDECAR_CONTROL_READ_TOKEN_FILE"} {
		write(t, at("other"), "root:"+canary+":1:2\ndaemon:x:2:3\n")
		if line := refuse(t, variable, variable+"="+at("other")); strings.Contains(line, canary) || strings.Contains(line, "root") {
			t.Errorf("the content shows: %s", line)
		}
	}
}

// TestControlTokens: neither of the two shows when they are refused for being the same, wherever they come from.
func TestControlTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "0123456789"+canary+"\n")
	for _, env := range [][]string{
		{"SIDECAR_CONTROL_TOKEN=0123456789" + canary, "SIDECAR_CONTROL_READ_TOKEN_FILE=" + file},
		{"SIDECAR_CONTROL_TOKEN_FILE=" + file, "SIDECAR_CONTROL_READ_TOKEN_FILE=" + file},
	} {
		refuseSaying(t, "is the same as", "SIDECAR_CONTROL_READ_TOKEN_FILE", env...)
	}
	l := load(t, "SIDECAR_CONTROL_TOKEN_FILE="+file, "SIDECAR_CONTROL_READ_TOKEN=another-0123456789").Listen
	wantValue(t, l.ControlToken, "0123456789"+canary)
	wantValue(t, l.ControlReadToken, "another-0123456789")
}

func TestAMQPURLNeverShows(t *testing.T) {
	t.Parallel()
	for _, v := range []string{
		"amqp://u:%s%%zz@h/", "amqp://u:1/%s@h/", "amqp://u:1?%s@h/", "amqp://u:1#%s@h/", "amqp://u:%s/x@h", "amqp://u:%s,x@h/", "%s", "amqps:%s",
		"amqp://u:p@h/?%s", "amqp://u:p@h:%s/", "amqp://%s$/", "amqp://[%s/", "amqp://u:p@h/ %s", "amqp://u:1,%s@h", "amqp://u\n%s@h",
	} {
		refuseSaying(t, "SIDECAR_AMQP_URL=***: ", "SIDECAR_AMQP_URL", "SIDECAR_AMQP_URL="+fmt.Sprintf(v, canary))
	}
}
