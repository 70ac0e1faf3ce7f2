package publish

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"

	"sidecar/internal/telemetry"
)

// jsonLines is a batch in JSON Lines. Empty lines are none.
type jsonLines struct {
	server *Server
	in     *bufio.Reader
	trace  telemetry.Carrier
	line   []byte
}

func (j *jsonLines) next() (outgoing, int64, *failure, error) {
	for {
		r := room{server: j.server, wait: true}
		f, err := j.read(&r)
		if err == nil && f == nil && len(bytes.TrimSpace(j.line)) == 0 {
			r.free()
			continue
		}
		if err != nil || f != nil {
			r.free()
			return outgoing{}, 0, f, err
		}
		m, f := j.server.readLine(j.line, j.trace)
		return m, r.taken, f, nil
	}
}

// read reads a line; of one that finds no room, or that is too long, all of it is passed over. What has no end, because the
// client was cut off, is no line.
func (j *jsonLines) read(r *room) (f *failure, err error) {
	j.line = j.line[:0]
	if cap(j.line) > firstRead {
		j.line = nil
	}
	longest := 2*j.server.o.MaxBody + maxHeaderBytes
	for {
		chunk, err := j.in.ReadSlice('\n')
		switch {
		case f != nil:
		case int64(len(j.line)+len(chunk)) > longest:
			f, j.line = errTooLarge, nil
		case !r.take(int64(len(chunk))):
			f, j.line = errBusy, nil
		default:
			j.line = append(j.line, chunk...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, errors.Is(err, io.EOF) && (f != nil || len(j.line) > 0):
			return f, nil
		default:
			return nil, err
		}
	}
}

// parts is a batch whose parts are messages with headers, as a request is one.
type parts struct {
	server *Server
	in     *multipart.Reader
	tail   *tail
	last   []byte // the line that ends the batch
	trace  telemetry.Carrier
}

func newParts(s *Server, in io.Reader, boundary string, trace telemetry.Carrier) *parts {
	t := &tail{in: in}
	return &parts{server: s, in: multipart.NewReader(t, boundary), tail: t, last: []byte("--" + boundary + "--"), trace: trace}
}

// tail remembers the end of what was read. Package multipart does not tell an end behind the last part from one before the
// first header of another.
type tail struct {
	in  io.Reader
	end []byte
}

// maxTail is more than that package reads ahead, in bytes.
const maxTail = 16 << 10

func (t *tail) Read(b []byte) (int, error) {
	n, err := t.in.Read(b)
	t.end = append(t.end, b[:n]...)
	if over := len(t.end) - maxTail; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return n, err
}

func (p *parts) next() (outgoing, int64, *failure, error) {
	part, err := p.in.NextRawPart()
	switch {
	case errors.Is(err, io.EOF) && bytes.Contains(p.tail.end, p.last):
		return outgoing{}, 0, nil, io.EOF
	case err != nil:
		return outgoing{}, 0, nil, errBroken
	}
	m, f := p.head(part.Header)
	if f != nil {
		return m, 0, f, nil
	}
	r := room{server: p.server, wait: true}
	m.msg.Body, f, err = r.read(part, -1)
	if err != nil {
		r.free()
		return m, 0, nil, errBroken
	}
	return m, r.taken, f, nil
}

// errBroken is the end of a batch in the middle.
var errBroken = errors.New("the batch cannot be read")

// head reads the headers of a part. Where a request has a path, a part has two headers.
func (p *parts) head(h map[string][]string) (outgoing, *failure) {
	alias, key := defaultAlias, ""
	if values, found := h["Amqp-Exchange"]; found {
		var f *failure
		if alias, f = decoded("Amqp-Exchange", values); f != nil {
			return outgoing{}, f
		}
	}
	if values, found := h["Amqp-Routing-Key"]; found {
		var f *failure
		if key, f = decoded("Amqp-Routing-Key", values); f != nil {
			return outgoing{}, f
		}
	}
	m, f := p.server.address(alias, key)
	if f != nil {
		return m, f
	}
	if coding := h["Content-Transfer-Encoding"]; len(coding) > 0 && !strings.EqualFold(coding[0], "binary") && !strings.EqualFold(coding[0], "8bit") && !strings.EqualFold(coding[0], "7bit") {
		return m, bad("Content-Transfer-Encoding is %.40q; a body is taken as it is.", coding[0])
	}
	m.msg, f = readHeaders(h)
	m.trace = prefer(prefer(carrierOf(h), telemetry.CarrierFrom(m.msg.Headers)), p.trace)
	return m, f
}
