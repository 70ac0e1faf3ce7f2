package console

import (
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

// TestSidecarGone: an old picture must not look like the present, and the page finds back to a sidecar that was
// restarted.
func TestSidecarGone(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONTROL_ADDR", strings.TrimPrefix(apptest.Refused(t), "http://")).run()
	sc.park(500, "order.created", numbered("order", 9)...)
	b := sc.open()
	b.until("#state-title", "Consuming")
	b.follow("Read the queue", "9 messages")
	if code, body := sc.call(http.MethodPost, "/dlq/redrive", `{"all":true,"rate":"0.1/s"}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	b.until("#operation", "Redriving")
	b.expect("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
	_ = sc.cmd.Process.Kill()
	b.until("#link", "Disconnected", "Again in")
	b.until("#state-title", "No news from the sidecar")
	b.until("#state-lines", "Last seen: Consuming")
	b.inspect("disconnected")
	b.click("Pause")
	b.until("#state-problem", "does not answer")
	sc.start()
	b.until("#link", "Live")
	b.until("#state-title", "Consuming")
	b.until("#operation", "The sidecar was restarted")
}

// listen takes a stream of events as a page does, and reports whether there was one left.
func (sc *scene) listen() (end func(), ok bool) {
	sc.t.Helper()
	res := must.Get(http.Get("http://" + sc.control + "/events"))(sc.t)
	end = func() { _ = res.Body.Close() }
	sc.t.Cleanup(end)
	return end, res.StatusCode == http.StatusOK
}

// TestHiddenPage: a hidden page leaves its stream to others after a while, and takes one again when it is seen. The
// sidecar serves eight streams; while others have them all, the page says why it has none.
func TestHiddenPage(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	b := sc.open(`const later = setTimeout; window.setTimeout = (f, ms) => later(f, ms > 60000 ? 10 : ms); // minutes are no time here
		let hidden = false; Object.defineProperty(document, "hidden", { get: () => hidden });
		window.hide = (h) => { hidden = h; document.dispatchEvent(new Event("visibilitychange")); return true; };`)
	b.until("#link", "Live")
	for range 7 {
		if _, ok := sc.listen(); !ok {
			t.Fatal("there were no eight streams")
		}
	}
	eval[bool](b, "hide(true)")
	var end func()
	eventually(t, "the page has left its stream", func() (ok bool) {
		end, ok = sc.listen()
		return ok
	})
	b.expect("503")
	eval[bool](b, "hide(false)")
	b.until("#link", "Disconnected", "at once")
	end()
	b.until("#link", "Live")
	eventually(t, "news", func() bool { return b.asked("/events") >= 2 && !strings.Contains(b.text("#link"), "nothing new") })
}
