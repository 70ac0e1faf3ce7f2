package publish

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"sidecar/internal/telemetry"
)

// jsonLines is a batch in JSON Lines. Empty lines are skipped.
type jsonLines struct {
	server *Server
	in     *bufio.Reader
	trace  telemetry.Carrier
}

func (j *jsonLines) next(r *room) (outgoing, *failure, error) {
	for {
		line, f, err := j.read(r)
		if slow := j.server.arrivals.pause(r); slow != nil {
			return outgoing{}, nil, slow
		}
		if err != nil || f != nil {
			return outgoing{}, f, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			r.free()
			continue
		}
		m, f := j.server.readLine(line, j.trace, r)
		return m, f, nil
	}
}

// read reads a line. A line that is too long, or for which no memory is free, is skipped as a whole and holds no
// memory. The last line may lack its line feed; a line cut by a broken connection is an error.
func (j *jsonLines) read(r *room) (line []byte, f *failure, err error) {
	for {
		chunk, err := j.in.ReadSlice('\n')
		if f == nil && len(chunk) > 0 {
			if line, f = j.add(r, line, chunk); f != nil {
				_ = j.server.arrivals.pause(r)
				r.free()
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if f == nil {
				j.server.arrivals.progress(r, len(line))
			}
		case err == nil, errors.Is(err, io.EOF) && (f != nil || len(line) > 0):
			return line, f, nil
		default:
			return nil, nil, err
		}
	}
}

// add appends a chunk to a line. A line that arrives at once gets a buffer of its size.
func (j *jsonLines) add(r *room, line, chunk []byte) ([]byte, *failure) {
	longest := 2*j.server.o.MaxBody + maxHeaderBytes
	need := int64(len(line) + len(chunk))
	if need > longest {
		return nil, errTooLarge
	}
	if len(line) == 0 {
		if f := r.reserve(costOfMessage + need); f != nil {
			return nil, f
		}
		return append(make([]byte, 0, need), chunk...), nil
	}
	if need > int64(cap(line)) {
		var f *failure
		if line, f = r.grow(line, need, longest); f != nil {
			return nil, f
		}
	}
	return append(line, chunk...), nil
}

// parts is a batch whose parts are messages with headers, as a request is one.
type parts struct {
	server *Server
	in     *multipart.Reader
	tail   *tail
	part   *multipart.Part // the last one, whose body may not have been read
	last   []byte          // the line that ends the batch
	trace  telemetry.Carrier
}

func newParts(s *Server, in io.Reader, boundary string, trace telemetry.Carrier) *parts {
	t := &tail{in: in}
	last := []byte("--" + boundary + "--")
	return &parts{server: s, in: multipart.NewReader(t, boundary), tail: t, last: last, trace: trace}
}

// tail keeps the last bytes that were read: package multipart does not distinguish an end behind the last part from one
// before the first header of another part. It also bounds the headers of a part.
type tail struct {
	in   io.Reader
	end  []byte
	left int // bytes that may be read
}

// costOfPartHeaders is the memory of a part's headers until they are counted, in bytes: package multipart reads up to
// 10,000.
const costOfPartHeaders = maxHeaderBytes + 10_000*costOfHeader

// maxTail is more than that package reads ahead, in bytes.
const maxTail = 16 << 10

func (t *tail) Read(b []byte) (int, error) {
	if t.left == 0 {
		return 0, errPartHeaders
	}
	n, err := t.in.Read(b[:min(len(b), t.left)])
	t.left -= n
	t.end = append(t.end, b[:n]...)
	if over := len(t.end) - maxTail; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return n, err
}

func (p *parts) next(r *room) (outgoing, *failure, error) {
	if p.part != nil && p.part.Close() != nil { // reads the rest of a body
		return outgoing{}, nil, errBroken
	}
	p.tail.left = maxHeaderBytes
	part, err := p.in.NextRawPart()
	switch {
	case errors.Is(err, errPartHeaders):
		return outgoing{}, nil, errPartHeaders
	case errors.Is(err, io.EOF) && bytes.Contains(p.tail.end, p.last):
		return outgoing{}, nil, io.EOF
	case err != nil:
		return outgoing{}, nil, errBroken
	}
	p.part, p.tail.left = part, math.MaxInt
	if f := r.reserve(costOfHeaders(part.Header)); f != nil {
		return outgoing{}, f, nil
	}
	m, f := p.head(part.Header)
	if f != nil {
		return m, f, nil
	}
	m.msg.Body, f, err = r.read(part, -1)
	switch {
	case err != nil:
		return m, nil, errBroken
	case f == errSlowest:
		return m, nil, f
	}
	return m, f, nil
}

var errPartHeaders = bad("A part has more than %d bytes of headers.", maxHeaderBytes)

// errBroken ends a batch that breaks off.
var errBroken = errors.New("the batch cannot be read")

// head reads the headers of a part. Where a request has a path, a part has two headers.
func (p *parts) head(h map[string][]string) (outgoing, *failure) {
	alias, key := defaultAlias, ""
	for name, to := range map[string]*string{"Amqp-Exchange": &alias, "Amqp-Routing-Key": &key} {
		if values, found := h[name]; found {
			var f *failure
			if *to, f = decoded(name, values); f != nil {
				return outgoing{}, f
			}
		}
	}
	m, f := p.server.address(alias, key)
	if f != nil {
		return m, f
	}
	coding := http.Header(h).Get("Content-Transfer-Encoding")
	if coding != "" && !slices.Contains([]string{"binary", "8bit", "7bit"}, strings.ToLower(coding)) {
		return m, bad("Content-Transfer-Encoding is %.40q; a body is taken as it is.", coding)
	}
	m.msg, f = readHeaders(h)
	m.trace = prefer(prefer(carrierOf(h), telemetry.CarrierFrom(m.msg.Headers)), p.trace)
	return m, f
}
