package publish

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

var (
	errEnd    = &failure{ends: true} // the regular end of a batch
	errBroken = ending(bad("The batch ended early, came too slowly or cannot be read."))
)

// jsonLines is a batch in JSON Lines. It is the io.Reader of the current line, which it ends with io.EOF.
type jsonLines struct {
	server *Server
	in     *bufio.Reader
	trace  telemetry.Carrier
	chunk  []byte // of the line, in the buffer of in, and not read yet
	err    error  // behind chunk: nil at the line feed, bufio.ErrBufferFull before it
}

func (j *jsonLines) Read(b []byte) (int, error) {
	if len(j.chunk) == 0 {
		j.chunk, j.err = j.in.ReadSlice('\n')
	}
	n := copy(b, j.chunk)
	j.chunk = j.chunk[n:]
	switch {
	case len(j.chunk) > 0, errors.Is(j.err, bufio.ErrBufferFull):
		return n, nil
	case j.err == nil:
		return n, io.EOF
	}
	return n, j.err
}

// next returns the next message; it skips empty lines. r is the memory of the message; the caller frees it, also after
// a failure. The last line may lack its line feed; a line cut by a broken connection ends the batch.
func (j *jsonLines) next(r *room) (outgoing, *failure) {
	for {
		j.chunk, j.err = j.in.ReadSlice('\n')
		switch {
		case len(j.chunk) > 0:
		case errors.Is(j.err, io.EOF):
			return outgoing{}, errEnd
		default:
			return outgoing{}, errBroken
		}
		line, f := j.line(r)
		if f != nil {
			return outgoing{}, f
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return j.server.readLine(line, j.trace, r)
		}
		r.free()
	}
}

// line reads the current line; one that arrives at once gets a buffer of its size. A line that is too long, or for
// which no memory is free, is skipped as a whole and holds no memory.
func (j *jsonLines) line(r *room) (line []byte, f *failure) {
	size := int64(len(j.chunk))
	if f = r.reserve(costOfMessage + size); f == nil {
		line, f = r.read(make([]byte, 0, size), j, 2*j.server.o.MaxBody+maxHeaderBytes)
	}
	if f == nil || f.ends {
		return line, f
	}
	r.free()
	for errors.Is(j.err, bufio.ErrBufferFull) {
		_, j.err = j.in.ReadSlice('\n')
	}
	if j.err != nil && !errors.Is(j.err, io.EOF) {
		return nil, errBroken
	}
	return nil, f
}

// readLine makes a message of a line of JSON. r holds the capacity of the line. The body of the message may be a part
// of the line, which is changed where a string in it has escapes.
func (s *Server) readLine(line []byte, request telemetry.Carrier, r *room) (outgoing, *failure) {
	var in amqpvalue.Line
	// A message that was received has these two. The user is that of the connection, and all messages are persistent.
	if err := in.Decode(line, "user_id", "delivery_mode"); err != nil {
		return outgoing{}, bad("The line cannot be published: %s.", err)
	}
	alias := defaultAlias
	if in.Exchange != nil {
		alias = s.aliasOf(*in.Exchange)
	}
	m, f := s.address(alias, in.RoutingKey)
	switch {
	case f != nil:
		return m, f
	case in.Invalid != nil:
		return m, bad("%s.", in.Invalid)
	}
	if f = notExpired(&in.Msg, "expiration"); f == nil {
		f = readTable(&in, r)
	}
	if f == nil && in.Base64 != nil {
		f = decodeBase64(&in, r, line)
	}
	if f != nil {
		return m, f
	}
	m.msg = in.Msg
	if int64(len(m.msg.Body)) > s.o.MaxBody {
		return m, errTooLarge
	}
	m.trace = prefer(telemetry.CarrierFrom(m.msg.Headers), request)
	return m, nil
}

// readTable reads the header table.
func readTable(in *amqpvalue.Line, r *room) *failure {
	most := in.HeadersCost()
	if most == 0 {
		return nil
	}
	if f := r.reserve(most); f != nil {
		return f
	}
	t, cost, err := in.Headers(message.Reserved, amqpvalue.MaxMemory)
	if err != nil {
		return bad("The headers cannot be published: %s.", err)
	}
	r.give(most - cost)
	in.Msg.Headers = t
	return nil
}

// decodeBase64 sets the body to a buffer of its own and gives back the memory of the line.
func decodeBase64(in *amqpvalue.Line, r *room, line []byte) *failure {
	size := base64.StdEncoding.DecodedLen(len(in.Base64))
	if f := r.reserve(int64(size)); f != nil {
		return f
	}
	var err error
	in.Msg.Body, err = base64.StdEncoding.AppendDecode(make([]byte, 0, size), in.Base64)
	if err != nil {
		return bad("body_base64 is not base64.")
	}
	r.give(int64(cap(line)))
	return nil
}
