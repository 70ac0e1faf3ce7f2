package calibrate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/sim/model"
)

var update = flag.Bool("update", false, "write what the real broker said as the golden transcript of its version")

func golden(v model.Version) string { return filepath.Join("testdata", "broker-"+v.String()+".golden") }

// TestModelIsCalibrated compares the model with what the real brokers said.
func TestModelIsCalibrated(t *testing.T) {
	t.Parallel()
	for _, v := range model.Versions {
		t.Run(v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := model.New(model.Options{Version: v, Seed: 1})
				same(t, v, play(t, func() (*amqp.Connection, error) {
					conn, err := b.Dial(t.Context(), "script")
					if err != nil {
						return nil, err
					}
					return amqp.Open(conn, amqp.Config{
						SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/",
					})
				}))
			})
		})
	}
}

// TestGoldenIsReal compares the golden transcript with the broker that is there.
func TestGoldenIsReal(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	v := lineOf(t, url)
	said := play(t, func() (*amqp.Connection, error) { return amqp.Dial(url) })
	said = strings.ReplaceAll(said, "vhost '"+brokertest.VhostName(t)+"'", "vhost '/'")
	if *update {
		if err := os.WriteFile(golden(v), []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same(t, v, said)
}

// lineOf is the newest line that has been compared and is not newer than the broker.
func lineOf(t *testing.T, url string) model.Version {
	t.Helper()
	said, _ := brokertest.Conn(t, url).Properties["version"].(string)
	var major, minor int
	if _, err := fmt.Sscanf(said, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("the broker's version is %q: %v", said, err)
	}
	line := model.V310
	for _, v := range model.Versions {
		of := strings.Split(v.String(), ".")
		x, _ := strconv.Atoi(of[0])
		y, _ := strconv.Atoi(of[1])
		if major > x || major == x && minor >= y {
			line = v
		}
	}
	return line
}

func same(t *testing.T, v model.Version, said string) {
	t.Helper()
	b, err := os.ReadFile(golden(v))
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(string(b), said); d != "" {
		t.Errorf("not what RabbitMQ %s said: %s", v, d)
	}
}

// difference names the first line in which two transcripts differ, and its scene; "" when they are the same.
func difference(golden, said string) string {
	want, got := strings.Split(golden, "\n"), strings.Split(said, "\n")
	scene := ""
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if strings.HasPrefix(w, "#") {
			scene = w
		}
		if w != g {
			return fmt.Sprintf("%s, line %d: want %q, got %q", scene, i+1, w, g)
		}
	}
	return ""
}
