package publish

import (
	"encoding/base64"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

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
