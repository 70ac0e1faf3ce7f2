// Package amqpwire handles the frames of an AMQP 0-9-1 connection. It sits between the socket and the client
// library: it takes deliveries and returned messages off the stream before the library sees them, sanitizes the header
// tables of everything else, keeps the deadlines, and bounds the memory of received bodies.
//
// It opens no connection and no channel, settles nothing, and never writes a frame of its own.
//
// It would be unnecessary with a client library that reads a delivery without reflection into memory of the caller,
// survives every header table that a broker lets through, bounds the memory of deliveries, reports a returned message
// before its confirm, and never drops a return.
package amqpwire
