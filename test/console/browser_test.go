package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sidecar/internal/testkit/must"
)

// tab is the console in a browser profile of its own. Whatever the page complains about, and every request that it
// makes to another process, fails the test.
type tab struct {
	t      testing.TB
	ctx    context.Context
	origin string

	mu       sync.Mutex
	errors   []string
	foreign  []string
	requests map[string]int // by path
	expected []string       // parts of complaints that the test provokes
}

// open shows the console of a scene, 1280 by 900 and light. The scripts, if any, run before the page's own.
func (sc *scene) open(scripts ...string) *tab {
	sc.t.Helper()
	ctx, cancel := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	b := &tab{t: sc.t, ctx: ctx, origin: "http://" + sc.control, requests: map[string]int{}}
	sc.t.Cleanup(func() {
		if sc.t.Failed() {
			b.picture("failed-"+strings.ReplaceAll(sc.t.Name(), "/", "-"), chromedp.FullScreenshot(100))
			sc.t.Logf("the page says:\n%s", b.text("body"))
		}
		cancel()
		b.verify()
	})
	must.Do(sc.t, chromedp.Listen(ctx, b.hear))
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		return err
	}), chromedp.EmulateViewport(1280, 900))
	b.scheme("light")
	for _, script := range scripts {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
			return err
		}))
	}
	b.do(chromedp.Navigate(b.origin + "/"))
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.errors = append(b.errors, "exception: "+text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.errors = append(b.errors, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		text := ""
		for _, a := range e.Args {
			text += " " + a.Description
		}
		b.errors = append(b.errors, fmt.Sprintf("console.%s:%s", e.Type, text))
	case *page.EventJavascriptDialogOpening:
		b.errors = append(b.errors, "a script asks: "+e.Message)
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		switch {
		case err == nil && u.Scheme == "blob" && u.Opaque != "" && strings.HasPrefix(u.Opaque, b.origin+"/"): // a file that the page has made
		case err != nil || u.Scheme != "data" && u.Scheme+"://"+u.Host != b.origin:
			b.foreign = append(b.foreign, e.Request.URL)
		default:
			b.requests[u.Path]++
		}
	}
}

// expect allows complaints that hold the text: those that the test provokes.
func (b *tab) expect(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, parts...)
}

func (b *tab) verify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(e, part) }) {
			b.t.Errorf("the page complains: %s", e)
		}
	}
	for _, u := range b.foreign {
		b.t.Errorf("the page asked another origin: %s", u)
	}
}

// asked counts the requests for a path.
func (b *tab) asked(path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[path]
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	must.Do(b.t, chromedp.Do(ctx, steps...))
}

// eval returns what an expression, or the promise it makes, comes to.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

func quote(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

// text is what is to be read in an element; "" when there is none, or none to be seen.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, readable(selector))
}

func readable(selector string) string {
	return `((e) => e?.checkVisibility() ? e.innerText ?? e.textContent : "")(document.querySelector(` + quote(selector) + `))`
}

// until waits for texts to be read in an element.
func (b *tab) until(selector string, texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.when(fmt.Sprintf("%q in %s", text, selector), readable(selector)+`.includes(`+quote(text)+`)`)
	}
}

// when waits until an expression is true. The page itself polls it, which costs less than a question for each try.
func (b *tab) when(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() bool {
		return eval[bool](b, `new Promise((done) => { const end = performance.now() + 1000;
			const poll = () => { const ok = `+expression+`; ok || performance.now() > end ? done(ok) : setTimeout(poll, 20) }; poll() })`)
	})
}

// click presses a button, or follows a link, that shows a text; it must be there once, and visible.
func (b *tab) click(text string) {
	b.t.Helper()
	find := `[...document.querySelectorAll("button, summary, a")].filter((e) => e.innerText.trim() === ` + quote(text) +
		` && e.checkVisibility() && !e.disabled && (!document.querySelector("dialog[open]") || e.closest("dialog[open]")))`
	b.when("one button "+text, find+".length === 1")
	b.press(find + "[0]")
}

// press clicks with the mouse on the element that an expression gives. What arrives meanwhile may have moved it: then
// the mouse has met something else, and aims again.
func (b *tab) press(element string) {
	b.t.Helper()
	eventually(b.t, "a click on "+element, func() bool {
		at := eval[[]float64](b, `(() => { const e = `+element+`; e.scrollIntoView({ block: "center", behavior: "instant" });
			window.pressed = false; e.addEventListener("click", () => { window.pressed = true }, { capture: true, once: true });
			const r = e.getBoundingClientRect(); return [r.x + Math.min(r.width, 60) / 2, r.y + r.height / 2] })()`)
		b.do(chromedp.MouseClickXY(at[0], at[1]))
		return eval[bool](b, `window.pressed`)
	})
}

// open clicks on the group, or the message, whose link holds a text.
func (b *tab) open(text string) {
	b.t.Helper()
	find := `[...document.querySelectorAll("a.open")].find((e) => e.textContent.includes(` + quote(text) + `))`
	b.when("a row "+text, find+" !== undefined")
	b.press(find)
}

// follow clicks on what leads to a view with a heading.
func (b *tab) follow(text, heading string) {
	b.t.Helper()
	b.click(text)
	b.until("#view h3", heading)
}

// read opens a group, or a message, whose view has a heading.
func (b *tab) read(text, heading string) {
	b.t.Helper()
	b.open(text)
	b.until("#view h3", heading)
}

// visible reports whether an element is to be seen.
func (b *tab) visible(selector string) bool {
	b.t.Helper()
	return eval[bool](b, `document.querySelector(`+quote(selector)+`)?.checkVisibility() ?? false`)
}

// fill writes into a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	eval[bool](b, `(() => { const f = document.querySelector(`+quote(selector)+`); f.focus(); f.select(); return true })()`)
	b.keys(kb.Backspace)
	if text != "" {
		b.keys(text)
	}
}

func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// focused describes what has the focus.
func (b *tab) focused() string {
	b.t.Helper()
	return eval[string](b, `(() => { const e = document.activeElement; return (e.id || e.tagName) + ": " + e.innerText })()`)
}

// tabTo presses Tab, with Shift to go back, until an element that matches has the focus, which has to be seen there.
func (b *tab) tabTo(selector string, with ...chromedp.KeyOption) {
	b.t.Helper()
	var way []string
	for range 80 {
		b.do(chromedp.KeyEvent(kb.Tab, with...))
		if eval[bool](b, `document.activeElement.matches(`+quote(selector)+`)`) {
			if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
				b.t.Errorf("the focus on %s is not to be seen", b.focused())
			}
			return
		}
		way = append(way, b.focused())
	}
	b.t.Fatalf("no Tab leads to %s, only to %q", selector, way)
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
}

// shot keeps a picture of the page, if pictures are wanted.
func (b *tab) shot(name string) {
	b.t.Helper()
	if shots == "" {
		return
	}
	// A dialog is laid over the window, not over the page: of the window then.
	take := chromedp.FullScreenshot(100)
	if eval[bool](b, `document.querySelector("dialog[open]") !== null`) {
		take = chromedp.CaptureScreenshot()
	}
	b.picture(name, take)
}

func (b *tab) picture(name string, take chromedp.Action[[]byte]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	dir := cmp.Or(shots, "screenshots")
	picture, err := chromedp.Run(ctx, take)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
	}
	if err != nil {
		b.t.Errorf("picture %s: %v", name, err)
	}
}

// window keeps a picture of what is on the screen when an element is at its top, if pictures are wanted.
func (b *tab) window(name, selector string) {
	b.t.Helper()
	eval[bool](b, `(document.querySelector(`+quote(selector)+`).scrollIntoView({ block: "start", behavior: "instant" }), true)`)
	if shots != "" {
		b.picture(name, chromedp.CaptureScreenshot())
	}
}

// inspect checks a state of the page in the light scheme on a wide screen and in the dark one on a narrow screen: axe
// finds no violation, and no element is wider than the screen.
func (b *tab) inspect(name string) {
	b.t.Helper()
	b.axe(name)
	b.shot(name)
	b.scheme("dark")
	b.do(chromedp.EmulateViewport(390, 844))
	b.fits(name)
	b.axe(name + ", dark and narrow")
	b.shot(name + "-dark-narrow")
	b.scheme("light")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.fits(name)
}

// phone keeps a picture of the page on a phone, if pictures are wanted.
func (b *tab) phone(name string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(390, 844))
	b.fits(name)
	if shots != "" {
		b.picture(name, chromedp.CaptureScreenshot())
	}
	b.do(chromedp.EmulateViewport(1280, 900))
}

// fits checks that nothing sticks out to the right, and no name out of its box in the drawing. A line of a dense list is
// cut at the end of its cell.
func (b *tab) fits(what string) {
	b.t.Helper()
	var wide []string
	find := `(() => {
		const limit = document.documentElement.clientWidth;
		const clipped = (e) => e.matches(".rows td *") && getComputedStyle(e.closest("td")).whiteSpace === "nowrap";
		const drawn = [...document.querySelectorAll("#drawing .box")].filter((g) => [...g.querySelectorAll("text")].some((t) =>
			t.getBoundingClientRect().right > g.querySelector("rect").getBoundingClientRect().right));
		const out = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && !e.closest(".unseen, .skip") && !clipped(e) &&
			e.getBoundingClientRect().right > limit + 1).concat(drawn);
		return out.slice(0, 5).map((e) => e.tagName + "." + e.id + ": " + (e.textContent ?? "").slice(0, 60));
	})()`
	// A drawing follows the width of the window a moment later.
	for range 50 {
		if wide = eval[[]string](b, find); len(wide) == 0 {
			return
		}
		eval[bool](b, `new Promise((next) => setTimeout(() => next(true), 100))`)
	}
	b.t.Errorf("%s: wider than the screen of %d: %q", what, eval[int](b, "document.documentElement.clientWidth"), wide)
}

// axe runs all its rules.
func (b *tab) axe(what string) {
	b.t.Helper()
	type violation struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	if !eval[bool](b, `typeof axe === "object"`) {
		eval[bool](b, axe+"\n;true")
	}
	found := eval[struct{ Violations, Passes []violation }](b, `axe.run(document, { resultTypes: ["violations"], rules: { "target-size": { enabled: true } } }).then(({ violations, passes }) => ({
		violations: violations.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => ({ html: n.html, failureSummary: n.failureSummary })) })),
		passes: passes.map((v) => ({ id: v.id })) }))`)
	if len(found.Passes) < 10 {
		b.t.Errorf("%s: axe has checked next to nothing: %v", what, found.Passes)
	}
	for _, v := range found.Violations {
		b.t.Errorf("%s: axe: %s: %s", what, v.ID, v.Help)
		for _, n := range v.Nodes {
			b.t.Logf("\t%s\n\t%s", n.HTML, n.FailureSummary)
		}
	}
}
