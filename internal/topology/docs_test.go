package topology

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

const docs = "../../docs/topologies.md"

// TestDocs keeps what the documentation shows equal to what the code makes. Generated blocks are between
// <!-- generated: name --> and <!-- end -->; -update rewrites them.
func TestDocs(t *testing.T) {
	t.Parallel()
	text := generated(t, docs, map[string]string{"rules": rulesTable()})
	if len(shown) != len(presets()) {
		t.Errorf("%d presets are shown, want %d", len(shown), len(presets()))
	}
	for preset, o := range shown {
		p := show(t, preset, nil)
		declare, verify := p.Permissions(ModeDeclare), p.Permissions(ModeVerify)
		text += generated(t, "../../docs/topologies/"+preset+".md", map[string]string{
			"mermaid " + preset: "```mermaid\n" + Mermaid(p) + "```\n",
			"plan " + preset:    "```text\n" + p.Text() + "```\n",
			"permissions " + preset: fmt.Sprintf("```sh\n# declare\n%s\n# verify\n%s\n```\n",
				declare.Command("/", o.Service), verify.Command("/", o.Service)),
		})
	}
	page := must.Get(os.ReadFile("testdata/brokenplans/three-mistakes-of-the-page.errors"))(t)
	for line := range strings.Lines(string(page)) {
		if !strings.Contains(text, ": "+line) {
			t.Errorf("docs/topologies.md does not show the mistake %s", line)
		}
	}
	for _, word := range slices.Concat(Presets, []string{
		HeaderFinalStatusCode, HeaderFinalError, HeaderFinalReason, HeaderFinalDetail, HeaderFinalAnswer, HeaderFinalAt, HeaderFinalProblemType,
		HeaderFinalProblemTitle, HeaderFinalProblemDetail, headerFinalDropped, headerOriginalExpiration, headerOriginalUserID,
		headerOriginalCC, headerOriginalBCC, headerOriginalReplyTo, HeaderRetryQueue,
		"SIDECAR_PREFIX", "SIDECAR_EXCHANGE", "SIDECAR_EXCHANGE_TYPE", "SIDECAR_QUEUE", "SIDECAR_BINDINGS", "SIDECAR_RETRY_EXCHANGE",
		"SIDECAR_RETRY_QUEUE", "SIDECAR_DLX", "SIDECAR_DLQ", "SIDECAR_QUEUE_TYPE", "SIDECAR_MESSAGE_TTL", "SIDECAR_RETRY_DELAY",
	}, exchangeTypes) {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("neither docs/topologies.md nor the page of a preset mentions %s", word)
		}
	}
}

// rulesTable is the table of rules for people.
func rulesTable() string {
	of := []string{"service queue", "retry queue", "dead-letter queue", "main exchange", "retry exchange", "dead-letter exchange"}
	words := strings.NewReplacer("%v", "N", "{takes}", "drops or dead-letters it", "{another}", "another name", "{delay policy}", "a policy with the delays")
	text := "| property | of | | why | fix |\n|---|---|---|---|---|\n"
	for _, r := range rules {
		var objects []string
		for i, name := range of {
			if r.on&(mainQueue<<i) != 0 {
				objects = append(objects, name)
			}
		}
		say := func(s string) string { return (&Plan{}).Say(words.Replace(s)) }
		text += fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |\n", strings.Join(r.properties, "`, `"), strings.Join(objects, ", "), r.judgement, say(r.reason), say(r.fix))
	}
	return text
}

// TestDocumentedPlan: a plan that no preset made is as good as any, and every field of a file is explained.
func TestDocumentedPlan(t *testing.T) {
	t.Parallel()
	text := string(must.Get(os.ReadFile(docs))(t))
	_, rest, _ := strings.Cut(text, "```json\n")
	file, _, _ := strings.Cut(rest, "```")
	p := must.Get(ParsePlan([]byte(file), "mail-sender", 0))(t)
	for retries, key := range []string{"mail.later", "mail.tomorrow", "mail.tomorrow"} {
		s := p.Settlement(&message.Message{Queue: p.Queue, RetryCount: retries}, message.Verdict{Action: message.Retry})
		if s.Publish == nil || s.Publish.Key != key || s.Final != FinalAck {
			t.Errorf("retry %d: %+v", retries, s)
		}
	}
	for _, of := range []any{planFile{}, planWait{}, Exchange{}, Queue{}, Binding{}} {
		for _, f := range fieldsOf(reflect.TypeOf(of)) {
			if !strings.Contains(text, "`"+f.name+"`") {
				t.Errorf("%s does not mention %s", docs, f.name)
			}
		}
	}
}

// generated compares the blocks of a page with what they have to be, or rewrites them, and returns the page.
func generated(t *testing.T, page string, blocks map[string]string) string {
	t.Helper()
	raw := must.Get(os.ReadFile(page))(t)
	text := string(raw)
	for name, block := range blocks {
		text = replaceBlock(t, text, name, block)
	}
	if n := strings.Count(text, "<!-- generated: "); n != len(blocks) {
		t.Errorf("%s has %d generated blocks, want %d", page, n, len(blocks))
	}
	if *update {
		must.Do(t, os.WriteFile(page, []byte(text), 0o644))
	} else if text != string(raw) {
		t.Errorf("generated blocks of %s are stale: go test ./internal/topology -run TestDocs -update", page)
	}
	return text
}

func replaceBlock(t *testing.T, text, name, block string) string {
	t.Helper()
	begin := "<!-- generated: " + name + " -->\n"
	head, rest, ok := strings.Cut(text, begin)
	_, tail, end := strings.Cut(rest, "<!-- end -->")
	if !ok || !end {
		t.Fatalf("no block %q", name)
	}
	return head + begin + block + "<!-- end -->" + tail
}
