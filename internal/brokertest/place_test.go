package brokertest

import (
	"strings"
	"testing"
)

func TestEachTestHasAVirtualHost(t *testing.T) {
	t.Parallel()
	urls := make(chan string, 4)
	t.Run("tests", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				urls <- URL(t)
				t.Run("inner", func(t *testing.T) { urls <- URL(t) })
			})
		}
	})
	count := map[string]int{}
	for range 4 {
		count[<-urls]++
	}
	if len(count) != 2 {
		t.Errorf("two tests with a subtest each have had %v", count)
	}
	for url, n := range count {
		if n != 2 {
			t.Errorf("%s was used %d times, want by a test and its subtest", url, n)
		}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	Queue(t, URL(t), "listed", map[string]any{"x-max-length": int64(7), "x-dead-letter-exchange": "elsewhere"})
	rows := Rows(t, "queues", "name", "arguments", "durable")
	if len(rows) != 1 || rows[0]["name"] != "listed" || rows[0]["durable"] != true {
		t.Fatalf("%v", rows)
	}
	args, _ := rows[0]["arguments"].(map[string]any)
	if args["x-max-length"] != 7.0 || args["x-dead-letter-exchange"] != "elsewhere" {
		t.Errorf("arguments %v", rows[0]["arguments"])
	}
	if v := Eval(t, "1 + 1."); v != "2" {
		t.Errorf("1 + 1 is %q", v)
	}
	if _, err := sharedNode(t).Eval("no_such_module:f()"); err == nil || !strings.Contains(err.Error(), "undef") {
		t.Errorf("an unknown function: %v", err)
	}
	user := User(t, "first")
	Ctl(t, "change_password", user, "second")
	Channel(t, URLAs(t, user, "second"))
}

func TestOwnNode(t *testing.T) {
	t.Parallel()
	shared := sharedNode(t).url.Host
	n := OwnNode(t)
	if strings.Contains(URL(t), shared) {
		t.Fatalf("%s is the shared node", URL(t))
	}
	n.MaxSize(1 << 20)
	n.Alarm()
	if v := Eval(t, "rabbit_alarm:get_alarms() =/= []"); v != "true" {
		t.Errorf("no alarm: %s", v)
	}
	n.Kill()
	n.Start()
	if v := Eval(t, "rabbit_alarm:get_alarms()"); v != "[]" {
		t.Errorf("an alarm after a restart: %s", v)
	}
	Queue(t, URL(t), "q", nil)
}

func TestDelayingNodes(t *testing.T) {
	t.Parallel()
	t.Run("together", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				Delaying(t)
				if v := Version(t); !strings.HasPrefix(v, delaying+".") {
					t.Errorf("RabbitMQ %s", v)
				}
			})
		}
	})
	n := OwnDelayingNode(t)
	n.Kill()
	n.Start()
	if v := Version(t); !strings.HasPrefix(v, delaying+".") {
		t.Errorf("RabbitMQ %s after a kill", v)
	}
}
