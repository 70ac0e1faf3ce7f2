package test

import "testing"

// TestRawPublisher proves the hand-made publisher against the Go client's reader, so that a failure elsewhere is the
// sidecar's.
func TestRawPublisher(t *testing.T) {
	t.Parallel()
	b := dialBroker(t)
	q := "bb" + token() + ".raw"
	t.Cleanup(func() { b.drop([]string{q}, nil) })
	if err := b.declare(q, nil); err != nil {
		t.Fatal(err)
	}
	if err := publishRaw(t, "", q, "id-1", table{}.text("a", "b").field("n", 'F', longstr(nested(3)))); err != nil {
		t.Fatal(err)
	}
	d := b.take(q, 1)[0]
	if d.MessageId != "id-1" || d.Headers["a"] != "b" || string(d.Body) != "{}" || d.DeliveryMode != 2 {
		t.Errorf("came back as id %q, headers %v, body %q, mode %d", d.MessageId, d.Headers, d.Body, d.DeliveryMode)
	}
}
