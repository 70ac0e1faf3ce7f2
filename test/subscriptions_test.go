package test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestStartedNamesEverything: the line of the start and /status have all queues, their bindings and the app's URLs.
func TestStartedNamesEverything(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	other := newApp(t)
	sc.with("SUBSCRIPTIONS", "orders,refunds", "SUB_REFUNDS_APP_URL", other.URL+"/refunds?token=canary",
		"SUB_REFUNDS_EXCHANGE_TYPE", "topic", "SUB_REFUNDS_EXCHANGE", sc.prefix+".events", "SUB_REFUNDS_BINDINGS", sc.prefix+".events:refund.*")
	s := sc.run()
	queues := []string{sc.queue() + ".orders", sc.queue() + ".refunds"}
	bindings := []string{sc.exchange() + ":", sc.prefix + ".events:refund.*"}
	urls := []string{sc.env["SIDECAR_APP_URL"], other.URL + "/refunds"}
	lines := s.log.find(func(e entry) bool { return e.is("started") })
	if len(lines) != 1 || lines[0].text("queue") != strings.Join(queues, ", ") || lines[0].text("bindings") != strings.Join(bindings, ",") ||
		lines[0].text("url") != strings.Join(urls, ", ") || lines[0].text("topology") != "fanout" {
		t.Errorf("%v", lines)
	}
	type bound struct{ Exchange, Key, Queue string }
	type state struct {
		Queue    string
		Bindings []bound
		App      struct{ URL string }
	}
	var st struct {
		state
		Subscriptions []state
	}
	_, page := s.get(s.control, "/status")
	must.Do(t, json.Unmarshal([]byte(page), &st))
	of := []bound{{sc.exchange(), "", queues[0]}, {sc.prefix + ".events", "refund.*", queues[1]}}
	if len(st.Bindings) != 2 || st.Bindings[0] != of[0] || st.Bindings[1] != of[1] || st.App.URL != strings.Join(urls, ", ") || len(st.Subscriptions) != 2 {
		t.Fatalf("%s", page)
	}
	for i, own := range st.Subscriptions {
		if own.Queue != queues[i] || len(own.Bindings) != 1 || own.Bindings[0] != of[i] || own.App.URL != urls[i] {
			t.Errorf("%+v", own)
		}
	}
	s.stop()
	for _, e := range s.log.find(func(entry) bool { return true }) {
		for field, value := range e {
			if value == "" {
				t.Errorf("empty %s of %s", field, e.text("msg"))
			}
		}
	}
}

// TestCheckOfSubscriptions: a check names the subscription in each line, and finds what one of them lacks.
func TestCheckOfSubscriptions(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("SUBSCRIPTIONS", "orders,refunds").with("QUEUE_TYPE", "quorum")
	r := command(t, sc.env, "check")
	for _, name := range []string{"orders", "refunds"} {
		if r.code != 1 || !strings.Contains(r.stdout, "problem  "+name+": queue \""+sc.queue()+"."+name+"\": missing\n") {
			t.Errorf("exit %d, %s is missing:\n%s", r.code, name, r.all())
		}
	}
	sc.run()
	before := declared(t, sc.prefix)
	r = command(t, sc.env, "check", "--roundtrip")
	for _, name := range []string{"orders", "refunds"} {
		queue := sc.queue() + "." + name
		for _, want := range []string{"\nok       " + name + ": " + queue + " fits", " was published to " + queue + ".roundtrip, failed with 503"} {
			if r.code != 0 || !strings.Contains(r.stdout, want) {
				t.Errorf("exit %d, not said: %s\n%s", r.code, want, r.all())
			}
		}
	}
	if after := declared(t, sc.prefix); !slices.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	r = command(t, sc.env, "check", "--json")
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); r.code != 0 || len(lines) != 2 || !strings.Contains(lines[1], `"subscription":"refunds","queue":"`+sc.queue()+`.refunds","fits":true`) {
		t.Errorf("exit %d:\n%s", r.code, r.all())
	}
}
