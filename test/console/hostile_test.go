package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// hostile texts would run, load something, or turn the page round if they were ever taken for more than text.
var hostile = []string{
	`<img src=x onerror=alert(1)>`,
	`</script><script>alert(1)</script>`,
	`javascript:alert(1)`,
	`"><iframe srcdoc="<script>parent.alert(1)</script>"></iframe>`,
	`' onfocus=alert(1) autofocus x='`,
	`<svg/onload=alert(1)>&lt;b&gt;`,
	"\u202egnp.exe\u2066",
	"{{constructor.constructor('alert(1)')()}}${alert(1)}",
	"two\r\nlines\x1b[31m",
	strings.Repeat("W", 10<<10),
	strings.Repeat("<b>x", 60),
}

// short is what fits where AMQP allows 255 bytes.
func short(s string) string { return s[:min(len(s), 240)] }

// hostileMessage has one text in every place that a sender can write to.
func hostileMessage(i int, text string) amqp.Publishing {
	whole := text
	text = text[:min(len(text), 4<<10)] // all of them together fit one AMQP frame
	headers := amqp.Table{
		short("h " + text): whole, "list": []any{text, int64(1)<<60 + 1, amqp.Table{short(text): text}}, "bytes": []byte(text + "\xff"),
		"x-original-queue": text, "x-original-exchange": text, "x-original-routing-key": text,
		"x-final-reason": "max_retries", "x-final-error": text, "x-final-detail": text, "x-final-answer": text,
		"x-final-problem-type": text, "x-final-problem-title": fmt.Sprintf("%d %s", i, text), "x-final-problem-detail": text,
		"x-death": []any{amqp.Table{
			"queue": text, "reason": text, "count": int64(3), "exchange": text, "routing-keys": []any{text}, "time": nil,
		}},
	}
	return amqp.Publishing{
		Headers: headers, ContentType: short(text), ContentEncoding: short(text), CorrelationId: short(text), ReplyTo: short(text),
		MessageId: short(fmt.Sprintf("%d %s", i, text)), Type: short(text), AppId: short(text), Body: []byte(whole), DeliveryMode: amqp.Persistent,
	}
}

// TestHostileMessages: whatever a message holds is shown as the text that it is.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	sc := newScene(t).run()
	ch := brokertest.Channel(t, brokertest.URL(t))
	for i, text := range hostile {
		brokertest.Publish(t, ch, "", sc.dlq(), hostileMessage(i, text))
	}
	b := sc.open()
	b.follow("Read the queue", fmt.Sprintf("%d messages in %d groups", len(hostile), len(hostile)))
	harmless(b, "groups")
	b.inspect("hostile-groups")
	for _, i := range []int{0, 3, 6, 9} {
		text := hostile[i]
		b.press(`document.querySelector("#views a:last-child")`)
		b.until("#view h3", "messages in")
		b.press(fmt.Sprintf(`document.querySelectorAll("#view tbody a")[%d]`, i)) // a group is named without values
		b.until("#view table", "Place")
		harmless(b, "list "+text)
		b.read(fmt.Sprint(i), fmt.Sprint(i))
		b.click("Show body")
		eventually(t, "the body", func() bool { return b.visible("#view .body pre") })
		if i == 0 || i == 9 {
			b.inspect(fmt.Sprintf("hostile-message-%d", i))
		}
		for eval[int](b, `[...document.querySelectorAll("#view button")].filter((e) => e.innerText.startsWith("Show all")).length`) > 0 {
			b.press(`[...document.querySelectorAll("#view button")].find((e) => e.innerText.startsWith("Show all"))`)
		}
		harmless(b, "message "+text)
		b.fits("message " + text)
		shown := eval[string](b, `document.querySelector("#view").textContent`)
		if n := strings.Count(shown, beginning(asShown(text), 100)); n < 12 {
			t.Errorf("%.40q is to be read only %d times", text, n)
		}
		b.click("Redrive …")
		b.until("dialog[open]", "1 more is another service’s and will stay")
		harmless(b, "dialog "+text)
		b.click("Close")
	}
	// An address is as hostile as a message.
	b.expect("400", "404")
	for _, text := range hostile[:2] {
		for _, path := range []string{"#/dlq?error=", "#/dlq?", "#/dlq/messages?sort=", "#/dlq/messages?group=", "#/dlq/messages/", "#/dlq/operations/", "#/"} {
			b.visit(path + url.PathEscape(text))
			eventually(t, "the page of the address", func() bool { return b.text("#view h3") != "" })
			harmless(b, path+text)
		}
	}
	b.visit("#/dlq")
	b.fill("#f-error", "x") // closed details hold it; the value is what counts
	if n := b.asked("/x"); n > 0 {
		t.Errorf("%d pictures were loaded", n)
	}
}

// asShown is a text with the characters spelled out that would hide or turn something.
func asShown(text string) string {
	for _, c := range []rune{'\u202e', '\u2066', '\r', '\x1b'} {
		text = strings.ReplaceAll(text, string(c), fmt.Sprintf("⟨U+%04X⟩", c))
	}
	return text
}

func beginning(s string, characters int) string {
	r := []rune(s)
	return string(r[:min(len(r), characters)])
}

// harmless checks that nothing became an element, an address or a handler.
func harmless(b *tab, where string) {
	b.t.Helper()
	found := eval[string](b, `[...document.querySelectorAll("img, iframe, object, embed, base, style, a:not([href^='#/'], .skip), svg svg, [onerror], [onload], [onfocus], [style], [srcdoc]")]
		.concat([...document.scripts].slice(1)).map((e) => e.outerHTML.slice(0, 200)).join("\n")`)
	if found != "" {
		b.t.Errorf("%.60q: text became more than text: %s", where, found)
	}
}
