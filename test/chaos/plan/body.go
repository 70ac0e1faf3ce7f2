package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Head is the first line of a message's body.
type Head struct {
	Run    string `json:"run"`
	Seq    int    `json:"seq"`
	Plan   string `json:"plan"`
	Canary string `json:"canary"` // must turn up in no log
}

// Body of a message: its head as one line, then padding.
func Body(h Head, size int) ([]byte, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := append(line, '\n')
	if n := size - len(b); n > 0 {
		b = append(b, bytes.Repeat([]byte{byte(h.Seq)}, n)...)
	}
	return b, nil
}

// Mark is the value of the header HeaderMark of a message.
func Mark(id string) string { return Sum([]byte("mark " + id)) }

// Headers that every message carries: the plan, for an app that must not read the body, and a value to compare.
const (
	HeaderPlan = "chaos-plan"
	HeaderMark = "chaos-mark"
)

// Properties that every message has, besides its id as correlation id.
const (
	ContentType = "application/x-chaos"
	Type        = "chaos.message"
)

// Sum of some bytes, short and good enough to distinguish them.
func Sum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
