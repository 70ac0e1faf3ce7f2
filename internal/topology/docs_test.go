package topology

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const docs = "../../docs/topologies.md"

// TestDocs keeps what the documentation shows equal to what the code makes. Generated blocks stand between
// <!-- generated: name --> and <!-- end -->; -update rewrites them.
func TestDocs(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	p := build(t, Options{Service: "wms-cincout"})
	declare, verify := p.Permissions(ModeDeclare), p.Permissions(ModeVerify)
	for name, block := range map[string]string{
		"mermaid": "```mermaid\n" + p.Mermaid() + "```\n",
		"plan":    "```\n" + p.Text() + "```\n",
		"permissions": fmt.Sprintf("```sh\n# declare\n%s\n# verify\n%s\n```\n",
			declare.command("/", "wms-cincout"), verify.command("/", "wms-cincout")),
	} {
		text = replaceBlock(t, text, name, block)
	}
	if *update {
		if err := os.WriteFile(docs, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(raw) {
		t.Error("generated blocks of docs/topologies.md are stale: go test ./internal/topology -run TestDocs -update")
	}
	for _, word := range append([]string{
		PresetFanout, PresetTopicTiers, PresetPerQueue, PresetDelayLadder, PresetDeadLetter,
		headerFinalStatusCode, headerFinalError, headerFinalReason, headerFinalDetail, headerFinalAt, headerFinalProblemType,
		headerFinalProblemTitle, headerFinalProblemDetail, headerFinalDropped, headerOriginalExpiration, headerOriginalUserID,
		headerOriginalCC, headerOriginalBCC,
	}, exchangeTypes...) {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("docs/topologies.md does not mention %s", word)
		}
	}
}

func replaceBlock(t *testing.T, text, name, block string) string {
	t.Helper()
	begin := "<!-- generated: " + name + " -->\n"
	head, rest, ok := strings.Cut(text, begin)
	_, tail, end := strings.Cut(rest, "<!-- end -->")
	if !ok || !end {
		t.Fatalf("docs/topologies.md has no block %q", name)
	}
	return head + begin + block + "<!-- end -->" + tail
}
