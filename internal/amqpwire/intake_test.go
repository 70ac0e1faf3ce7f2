package amqpwire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// conversation is a random sequence of frames on several channels, with deliveries to two consumers of ours among
// them, and what the library and each consumer should see of it.
type conversation struct {
	r    *rand.Rand
	sent []byte
	want []byte            // by the library
	ours map[string][]sent // by consumer
	tag  uint64
}

type sent struct {
	tag    uint64
	id     string
	table  string
	body   []byte
	again  bool
	routed string
}

func bodyFrames(r *rand.Rand, channel uint16, body []byte) (frames [][]byte) {
	for len(body) > 0 {
		n := min(len(body), 1+r.IntN(100_000))
		frames = append(frames, frame(3, channel, body[:n]))
		body = body[n:]
	}
	return frames
}

// message adds the frames of one message, mixed with those of another channel. Some of ours are never completed.
func (c *conversation) message(channel uint16, consumer string) {
	c.tag++
	r := c.r
	m := sent{
		tag: c.tag, id: strconv.FormatUint(c.tag, 10), table: strings.Repeat("v", r.IntN(300)), again: r.IntN(2) == 0,
		routed: "key." + strconv.Itoa(r.IntN(3)),
	}
	if r.IntN(4) > 0 {
		m.body = randomBytes(r, r.IntN(1+r.IntN(1+r.IntN(200_000))))
	}
	frames := append([][]byte{
		deliverFrame(channel, consumer, m.tag, m.again, "ex", m.routed), contentFrame(channel, m.id, m.table, len(m.body)),
	}, bodyFrames(r, channel, m.body)...)
	_, isOurs := c.ours[consumer]
	cut := isOurs && r.IntN(10) == 0
	switch {
	case cut:
		frames = frames[:1+r.IntN(len(frames)-1)]
	case isOurs:
		c.ours[consumer] = append(c.ours[consumer], m)
	}
	for _, f := range frames {
		c.add(f, !isOurs)
	}
	if cut {
		c.add(frame(1, channel, method(20, 20, []byte{1})), true)
	}
}

// add sends a frame, and perhaps one of another channel, or a heartbeat, behind it.
func (c *conversation) add(f []byte, library bool) {
	c.sent = append(c.sent, f...)
	if library {
		c.want = append(c.want, f...)
	}
	if c.r.IntN(3) == 0 {
		c.noise()
	}
}

// noise is for the library: it sees content headers that it can read.
func (c *conversation) noise() {
	f := frame(8, 0)
	switch c.r.IntN(8) {
	case 0:
		f = frame(1, 9, method(60, 80, randomBytes(c.r, 9)))
	case 1:
		f = frame(3, 9, randomBytes(c.r, c.r.IntN(2000)))
	case 2:
		f = contentFrame(9, "foreign", "", 7)
	case 3:
		f = frame(2, 9, header(field("deep", 'A', nested(30+c.r.IntN(6))...)))
	case 4:
		f = frame(2, 9, header(field("large", 'S', long(string(randomBytes(c.r, 100_000+c.r.IntN(60_000))))...), field("x", 'V')))
	case 5:
		f = frame(2, 9, header(many(9000, func(int) []byte { return field("ab", 'V') })))
	}
	c.sent = append(c.sent, f...)
	if f[0] == 2 {
		payload, _ := sanitize(bytes.Clone(f[frameHead:len(f)-frameTail]), FrameMax-frameHead-frameTail)
		f = frame(2, 9, payload)
	}
	c.want = append(c.want, f...)
}

func TestIntakeTakesOurDeliveriesHoweverTheBytesArrive(t *testing.T) {
	t.Parallel()
	for range 12 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 2))
		c := &conversation{r: r, ours: map[string][]sent{"ours-1": nil, "ours-2": nil}}
		for range 1 + r.IntN(60) {
			switch r.IntN(5) {
			case 0:
				c.message(3, "consumer")
			case 1:
				c.message(2, "ours-2")
			default:
				c.message(1, "ours-1")
			}
		}
		client := inPieces(c.sent, anySize)
		w := New(client, client, Options{Hidden: func(int) {}})
		boxes := map[string]*Deliveries{"ours-1": NewDeliveries(0), "ours-2": NewDeliveries(0)}
		for tag, q := range boxes {
			w.Consume(tag, q)
		}
		got, err := io.ReadAll(w)
		if err != nil || !errors.Is(w.Err(), io.EOF) {
			t.Fatalf("seed %d: %v; the end of the connection is kept as %v", seed, err, w.Err())
		}
		if !bytes.Equal(got, c.want) {
			t.Fatalf("seed %d: the library sees %d bytes instead of %d, or other ones", seed, len(got), len(c.want))
		}
		for tag, q := range boxes {
			compareInbox(t, seed, tag, q, c.ours[tag])
			w.Cancel(tag)
			if _, ended := q.Take(nil); !ended {
				t.Errorf("seed %d: the deliveries to %s go on", seed, tag)
			}
		}
	}
}

func compareInbox(t *testing.T, seed uint64, consumer string, q *Deliveries, want []sent) {
	t.Helper()
	got, _ := q.Take(nil)
	for _, d := range got {
		d.DecodeHeaders()
	}
	if len(got) != len(want) {
		t.Fatalf("seed %d: %s got %d deliveries instead of %d", seed, consumer, len(got), len(want))
	}
	for i, d := range got {
		w := want[i]
		if d.DeliveryTag != w.tag || d.MessageId != w.id || d.Headers["text"] != w.table || !bytes.Equal(d.Body, w.body) ||
			d.Redelivered != w.again || d.Exchange != "ex" || d.RoutingKey != w.routed {
			t.Fatalf("seed %d: %s got %d %q %s %v, %d bytes, instead of %d %q %s %v, %d bytes", seed, consumer, d.DeliveryTag,
				d.MessageId, d.RoutingKey, d.Redelivered, len(d.Body), w.tag, w.id, w.routed, w.again, len(w.body))
		}
	}
	for i, d := range got {
		headers, id := d.Headers, d.MessageId
		d.Free()
		if headers["text"] != want[i].table || id != want[i].id {
			t.Fatalf("seed %d: freeing a delivery changed its texts", seed)
		}
	}
}

// Whatever breaks the protocol ends the connection with a name: the messages are delivered again on the next one.
func TestIntakeGivesABrokenConnectionUp(t *testing.T) {
	t.Parallel()
	begin := deliverFrame(1, "ours", 1, false, "ex", "k")
	unmarked := func(f []byte) []byte {
		f = bytes.Clone(f)
		f[len(f)-1] = 0
		return f
	}
	tests := map[string]struct {
		frames [][]byte
		want   error
	}{
		"deliver cut short":      {[][]byte{frame(1, 1, method(60, 60, short("ours"), []byte{0, 0, 1}))}, errBadDeliver},
		"deliver far too long":   {[][]byte{frame(1, 1, method(60, 60, make([]byte, maxDeliver)))}, errBadDeliver},
		"deliver without an end": {[][]byte{unmarked(begin)}, errFrameEnd},
		"header without an end":  {[][]byte{begin, unmarked(contentFrame(1, "1", "", 3))}, errFrameEnd},
		"header cut short":       {[][]byte{begin, frame(2, 1, header()[:15])}, errBadContent},
		"header of no content":   {[][]byte{begin, frame(2, 1, []byte{0, 60})}, errBadContent},
		"header twice":           {[][]byte{begin, contentFrame(1, "1", "", 3), contentFrame(1, "1", "", 3)}, errBadContent},
		"header beyond reason":   {[][]byte{begin, frame(2, 1, make([]byte, maxHeaderFrame+1))}, errFrameSize},
		"body before its header": {[][]byte{begin, frame(3, 1, []byte("abc"))}, errBadBody},
		"body too long":          {[][]byte{begin, contentFrame(1, "1", "", 3), frame(3, 1, []byte("abcd"))}, errBadBody},
		"body frame too large":   {[][]byte{begin, contentFrame(1, "1", "", 300_000), frame(3, 1, make([]byte, FrameMax))}, errFrameSize},
		"body without bounds":    {[][]byte{begin, contentFrame(1, "1", "", 1<<62)}, errContent},
		"large body unasked":     {[][]byte{contentFrame(1, "1", "", maxForeign+1)}, errForeign},
		"ack cut short":          {[][]byte{frame(1, 1, method(60, 80, make([]byte, maxDeliver)))}, errBadConfirm},
		"body without an end":    {[][]byte{begin, contentFrame(1, "1", "", 3), unmarked(frame(3, 1, []byte("abc")))}, errFrameEnd},
		"large body, no end":     {[][]byte{begin, contentFrame(1, "1", "", 100_000), unmarked(frame(3, 1, make([]byte, 100_000)))}, errFrameEnd},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := frame(8, 0)
			w, q := consuming(Options{Hidden: func(int) {}}, bytes.Join(append([][]byte{before}, tt.frames...), nil), whole)
			got, err := io.ReadAll(w)
			w.Kill()
			if !errors.Is(err, tt.want) || !errors.Is(w.Err(), tt.want) {
				t.Errorf("got %v, kept %v", err, w.Err())
			}
			if !bytes.Equal(got, before) {
				t.Errorf("the library got %d bytes instead of %d", len(got), len(before))
			}
			if d, _ := q.Take(nil); len(d) > 0 {
				t.Errorf("%d deliveries of a broken stream", len(d))
			}
		})
	}
}

// TestDeliveryOnAnotherChannel: a consumer's deliveries come on one channel, else a peer could begin a message on each.
func TestDeliveryOnAnotherChannel(t *testing.T) {
	t.Parallel()
	for name, channels := range map[string][2]uint16{"another": {1, 2}, "none": {0, 0}} {
		stream := append(deliverFrame(channels[0], "ours", 1, false, "e", "k"), contentFrame(channels[0], "id", "v", 0)...)
		w, _ := consuming(Options{Hidden: func(int) {}}, append(stream, deliverFrame(channels[1], "ours", 2, false, "e", "k")...), whole)
		if _, err := w.Read(make([]byte, 1000)); !errors.Is(err, errBadDeliver) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
