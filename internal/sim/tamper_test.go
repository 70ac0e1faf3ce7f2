package sim

import (
	"encoding/binary"
	"net"
)

// tampered changes frames on their way from the sidecar to the broker: what a sidecar with a bug would have sent.
type tampered struct {
	net.Conn
	change  func(frame []byte) []byte
	greeted bool
	rest    []byte
}

func (c *tampered) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	var out []byte
	if !c.greeted && len(c.rest) >= 8 {
		out, c.rest, c.greeted = append(out, c.rest[:8]...), c.rest[8:], true
	}
	for c.greeted && len(c.rest) >= 8 {
		size := 8 + int(binary.BigEndian.Uint32(c.rest[3:]))
		if len(c.rest) < size {
			break
		}
		out = append(out, c.change(c.rest[:size:size])...)
		c.rest = c.rest[size:]
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// method is the class and method of a method frame, zeros for any other.
func method(frame []byte) (class, id uint16) {
	if frame[0] != 1 || len(frame) < 12 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])
}
