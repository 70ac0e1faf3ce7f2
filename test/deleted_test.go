package test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestDeletedAgainWithinTheHour: the second deletion does not replace the loss of the first.
func TestDeletedAgainWithinTheHour(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.app.otherwise(func(*delivery) answer {
		return answer{status: 409, header: map[string]string{"Amqp-Disposition": "park"}}
	})
	s := sc.run().listen()
	sc.send(numbered("m", 5)...)
	eventually(t, "the depth of the parked messages is measured", func() bool {
		return s.metric("sidecar_queue_messages_ready", `kind="dlq"`) == 5
	})
	for n := 1.0; n <= 2; n++ {
		sc.deleteQueue(sc.dlq())
		brokertest.Eventually(t, 90*time.Second, "it is there again, and reported", func() bool {
			return s.metric("sidecar_objects_redeclared_total", `kind="dlq"`) == n && s.ready()
		})
	}
	_, body := s.get(s.control, "/status")
	var st struct {
		Warnings   []string
		Redeclared []struct {
			LastDepth *int      `json:"last_depth"`
			LostSince time.Time `json:"lost_since"`
		}
	}
	if err := json.Unmarshal([]byte(body), &st); err != nil || len(st.Redeclared) != 2 {
		t.Fatalf("%s: %v", body, err)
	}
	first, second := st.Redeclared[0], st.Redeclared[1]
	if first.LastDepth == nil || *first.LastDepth != 5 || !first.LostSince.Before(second.LostSince) {
		t.Errorf("the first deletion: %s", body)
	}
	if second.LastDepth != nil && *second.LastDepth != 0 || !strings.Contains(body, "; 5 were ready in it ") {
		t.Errorf("the second deletion: %s", body)
	}
}

// TestDeletedQueueThatDelays: the report has the rejected messages that waited in it, and none of them waits any more.
func TestDeletedQueueThatDelays(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t).with("RETRY_DELAY", "1h", "MAX_RETRIES", "10")
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	s := sc.run().listen()
	sc.send(numbered("m", 10)...)
	eventually(t, "they wait", func() bool { return s.metric("sidecar_waiting_messages") == 10 })
	sc.deleteQueue(sc.queue())
	brokertest.Eventually(t, 90*time.Second, "it is there again, and reported", func() bool {
		return s.metric("sidecar_objects_redeclared_total", `kind="main"`) == 1 && s.ready()
	})
	_, body := s.get(s.control, "/status")
	if !strings.Contains(body, "it delayed 10 that this process had rejected") || strings.Count(body, `"waiting":10`) != 1 ||
		!strings.Contains(body, `"waiting":0`) {
		t.Errorf("the state is %s", body)
	}
	if n := s.metric("sidecar_waiting_messages"); n != 0 || !s.log.mentions("queue declared again", `"waiting":10`) {
		t.Errorf("%v wait in the new queue:\n%s", n, s.log.tail(10))
	}
	sc.send("new")
	eventually(t, "it waits in the new queue", func() bool { return s.metric("sidecar_waiting_messages") == 1 })
}

// TestReadOfADeletedDeadLetterQueue: the answer is 404 and makes the sidecar declare the queue again at once, before the
// watcher has missed it.
func TestReadOfADeletedDeadLetterQueue(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"queues": "/dlq", "groups": "/dlq/groups", "messages": "/dlq/messages"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			s := sc.run()
			sc.warm(s, 1)
			time.Sleep(1100 * time.Millisecond) // longer than a check is taken for granted
			sc.deleteQueue(sc.dlq())
			if code, body := s.get(s.control, path); code != 404 {
				t.Errorf("%d %s", code, body)
			}
			eventually(t, "the queue is there again", func() bool { return s.metric("sidecar_objects_redeclared_total", `kind="dlq"`) == 1 })
			if s.log.mentions("topology fits") {
				t.Errorf("the watcher missed it first:\n%s", s.log.tail(10))
			}
		})
	}
}

// TestDeletedAndDeclaredByAnotherClient: mode verify declares nothing. The finding of a missing object has what is known of
// its deletion, and when another client has declared it again, the deletion is counted and shown as in mode declare.
func TestDeletedAndDeclaredByAnotherClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, word string
		name       func(*scene) string
	}{
		{"main", "queue", (*scene).queue}, {"retry", "queue", (*scene).retryQueue}, {"dlq", "queue", (*scene).dlq},
		{"exchange", "exchange", (*scene).retryExchange},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			const hour = 3_600_000
			sc := newScene(t).with("TOPOLOGY_MODE", "verify", "RETRY_DELAY", "1h").seedTTL(hour)
			sc.app.otherwise(func(*delivery) answer {
				if c.kind == "dlq" {
					return answer{status: 409, header: map[string]string{"Amqp-Disposition": "park"}}
				}
				return status(409)
			})
			s := sc.run()
			if c.kind == "main" {
				s.api("").ask("POST", "/pause", "")
			}
			depth := ""
			if sc.send(numbered("m", 3)...); c.word == "queue" {
				depth = "; 3 were ready in it "
				eventually(t, "the depth is measured", func() bool {
					return s.metric("sidecar_queue_messages_ready", `kind="`+c.kind+`"`) == 3
				})
				sc.deleteQueue(c.name(sc))
			} else {
				sc.deleteExchange(c.name(sc))
			}
			eventually(t, "the log has the deletion", func() bool {
				return s.log.mentions(`"msg":"topology does not fit"`, c.name(sc), `"reason":"it was deleted: messages may be lost since `, depth)
			})
			_, body := s.get(s.control, "/status")
			if !strings.Contains(body, `"reason":"it was deleted: messages may be lost since `) || strings.Contains(body, `"redeclared"`) {
				t.Errorf("while it is missing: %s", body)
			}
			if n := s.metric("sidecar_objects_redeclared_total"); n != 0 {
				t.Errorf("%v are counted while it is missing", n)
			}
			sc.seedTTL(hour)
			brokertest.Eventually(t, 90*time.Second, "the deletion is reported", func() bool {
				return s.metric("sidecar_objects_redeclared_total", `kind="`+c.kind+`"`) == 1 && s.log.mentions("topology fits")
			})
			_, body = s.get(s.control, "/status")
			if n := s.metric("sidecar_objects_redeclared_total"); n != 1 || !s.log.mentions(`"msg":"`+c.word+` declared again"`, c.name(sc)) ||
				strings.Count(body, `"lost_since"`) != 1 || !strings.Contains(body, "("+c.kind+") was deleted and was declared again at ") ||
				!strings.Contains(body, depth) {
				t.Errorf("%v are counted; the state is %s", n, body)
			}
		})
	}
}
