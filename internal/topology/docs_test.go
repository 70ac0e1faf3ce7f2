package topology

import (
	"fmt"
	"os"
	"reflect"
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
	text := generated(t, docs, nil)
	if len(shown) != len(blueprints) {
		t.Errorf("%d presets are shown, want %d", len(shown), len(blueprints))
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
	for _, word := range append([]string{
		PresetFanout, PresetTopicTiers, PresetPerQueue, PresetDelayLadder, PresetDeadLetter, PresetNative,
		HeaderFinalStatusCode, HeaderFinalError, HeaderFinalReason, HeaderFinalDetail, HeaderFinalAnswer, HeaderFinalAt, HeaderFinalProblemType,
		HeaderFinalProblemTitle, HeaderFinalProblemDetail, headerFinalDropped, headerOriginalExpiration, headerOriginalUserID,
		headerOriginalCC, headerOriginalBCC, headerOriginalReplyTo, HeaderRetryQueue,
		"SIDECAR_PREFIX", "SIDECAR_EXCHANGE", "SIDECAR_EXCHANGE_TYPE", "SIDECAR_QUEUE", "SIDECAR_BINDINGS", "SIDECAR_RETRY_EXCHANGE",
		"SIDECAR_RETRY_QUEUE", "SIDECAR_DLX", "SIDECAR_DLQ", "SIDECAR_QUEUE_TYPE", "SIDECAR_MESSAGE_TTL", "SIDECAR_RETRY_DELAY",
	}, exchangeTypes...) {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("neither docs/topologies.md nor the page of a preset mentions %s", word)
		}
	}
}

// TestDocsListEveryRule: the table of docs/topologies.md has a row for every property of rules and every object that it
// is judged on, and text in the columns of the judgements that are possible.
func TestDocsListEveryRule(t *testing.T) {
	t.Parallel()
	type row struct {
		property string
		of       role
	}
	objects := map[string]role{
		"service queue": mainQueue, "retry queue": retryQueue, "dead-letter queue": deadLetterQueue, "queues": anyQueue,
		"main exchange": mainExchange, "retry exchange": retryExchange, "dead-letter exchange": parkExchange, "exchanges": anyExchange,
	}
	each := func(roles role, do func(role)) {
		for of := mainQueue; of <= parkExchange; of <<= 1 {
			if roles&of != 0 {
				do(of)
			}
		}
	}

	judged, decided := map[row]map[Judgement]bool{}, map[row]bool{}
	for i := range rules {
		r := &rules[i]
		for _, property := range r.properties {
			each(r.on, func(of role) {
				key := row{property, of}
				if judged[key] == nil {
					judged[key] = map[Judgement]bool{}
				}
				if !decided[key] {
					judged[key][r.judgement] = true
				}
				// A property that does not differ is not judged.
				always := r.when == nil || reflect.ValueOf(r.when).Pointer() == reflect.ValueOf(differs).Pointer()
				decided[key] = decided[key] || always
			})
		}
	}

	shown := map[row]map[Judgement]bool{}
	_, table, _ := strings.Cut(string(must.Get(os.ReadFile(docs))(t)), "| property | of | `note` | `warning` | `problem` |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var properties []string
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if of := objects[cells[1]]; len(cells) != 5 || of == 0 {
			t.Fatalf("row %q", line)
		}
		if cells[0] != "" {
			properties = strings.Split(strings.Trim(cells[0], "`"), "`, `")
		}
		for _, property := range properties {
			each(objects[cells[1]], func(of role) {
				all := map[Judgement]bool{}
				for i, judgement := range []Judgement{Harmless, Weaker, Breaks} {
					if cells[2+i] != "" {
						all[judgement] = true
					}
				}
				shown[row{property, of}] = all
			})
		}
	}
	if !reflect.DeepEqual(shown, judged) {
		for key := range judged {
			if !reflect.DeepEqual(shown[key], judged[key]) {
				t.Errorf("%s of %b: the table has %v, the rules have %v", key.property, key.of, shown[key], judged[key])
			}
		}
		for key := range shown {
			if judged[key] == nil {
				t.Errorf("%s of %b: no rule", key.property, key.of)
			}
		}
	}
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
