package model

import "encoding/binary"

// Properties of a message; a zero value is an absent one.
type Properties struct {
	ContentType, ContentEncoding                                       string
	Headers                                                            Table
	DeliveryMode, Priority                                             uint8
	CorrelationID, ReplyTo, Expiration, MessageID, Type, UserID, AppID string
	Timestamp                                                          uint64 // seconds since 1970
	ClusterID                                                          string
}

// Flags of the properties, in the order in which they follow in a content header.
const (
	flagContentType = 1 << (15 - iota)
	flagContentEncoding
	flagHeaders
	flagDeliveryMode
	flagPriority
	flagCorrelationID
	flagReplyTo
	flagExpiration
	flagMessageID
	flagTimestamp
	flagType
	flagUserID
	flagAppID
	flagClusterID
)

func (r *reader) properties() Properties {
	var p Properties
	flags := r.u16()
	text := func(flag uint16, to *string) {
		if flags&flag != 0 {
			*to = r.short()
		}
	}
	text(flagContentType, &p.ContentType)
	text(flagContentEncoding, &p.ContentEncoding)
	if flags&flagHeaders != 0 {
		p.Headers = r.table()
	}
	if flags&flagDeliveryMode != 0 {
		p.DeliveryMode = r.u8()
	}
	if flags&flagPriority != 0 {
		p.Priority = r.u8()
	}
	text(flagCorrelationID, &p.CorrelationID)
	text(flagReplyTo, &p.ReplyTo)
	text(flagExpiration, &p.Expiration)
	text(flagMessageID, &p.MessageID)
	if flags&flagTimestamp != 0 {
		p.Timestamp = r.u64()
	}
	text(flagType, &p.Type)
	text(flagUserID, &p.UserID)
	text(flagAppID, &p.AppID)
	text(flagClusterID, &p.ClusterID)
	return p
}

// appendContent appends the payload of a content header.
func appendContent(b []byte, p *Properties, size int) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 0, 60, 0, 0), uint64(size))
	at := len(b)
	b = append(b, 0, 0)
	var flags uint16
	text := func(flag uint16, s string) {
		if s != "" {
			flags |= flag
			b = appendShort(b, s)
		}
	}
	text(flagContentType, p.ContentType)
	text(flagContentEncoding, p.ContentEncoding)
	if len(p.Headers) > 0 {
		flags |= flagHeaders
		b = appendTable(b, p.Headers)
	}
	if p.DeliveryMode != 0 {
		flags |= flagDeliveryMode
		b = append(b, p.DeliveryMode)
	}
	if p.Priority != 0 {
		flags |= flagPriority
		b = append(b, p.Priority)
	}
	text(flagCorrelationID, p.CorrelationID)
	text(flagReplyTo, p.ReplyTo)
	text(flagExpiration, p.Expiration)
	text(flagMessageID, p.MessageID)
	if p.Timestamp != 0 {
		flags |= flagTimestamp
		b = binary.BigEndian.AppendUint64(b, p.Timestamp)
	}
	text(flagType, p.Type)
	text(flagUserID, p.UserID)
	text(flagAppID, p.AppID)
	text(flagClusterID, p.ClusterID)
	binary.BigEndian.PutUint16(b[at:], flags)
	return b
}
