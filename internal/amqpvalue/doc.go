// Package amqpvalue is the one place for the values in AMQP header tables and for a message's properties. It reads them
// from the wire, measures them, and converts them to text and JSON in two forms: plain (for apps: a whole number is an
// int64) and typed (every value names its AMQP type, so that an export loses nothing).
//
// It does not do I/O, does not decide which headers may be published (package message does), and does not repair
// hostile frames (package amqpwire does, before Decode).
package amqpvalue

const (
	// ShortMax is the longest AMQP short string, in bytes: a header name, a routing key or a property. The client library
	// answers a longer one by closing the whole connection.
	ShortMax = 255

	// MaxDepth is how many tables and arrays may be around a value, the header table itself not counted. The client
	// library reads no deeper.
	MaxDepth = 32

	// MaxElements is how many entries the client library reads of one table or array.
	MaxElements = 8192
)
