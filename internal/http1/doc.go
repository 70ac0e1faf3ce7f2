// Package http1 is the HTTP/1.1 client of the dispatcher: connections to one app, one request and one answer at a time.
// Inbound reads the plain requests of the other direction; net/http reads all others.
//
// It hands over the status, the header fields and a bounded body, and decides no verdict. It never sends a request a
// second time once a byte of it may have left, never follows a redirect, never asks the environment for a proxy, keeps
// no cookie and inflates no body. It does not pipeline, does not speak HTTP/2 and does not retry.
//
// net/http would make it unnecessary if its transport had an option never to send a request again (it repeats one on
// an idle connection that fails, when the request may be replayed), checked an idle connection before it wrote to
// it, and took less than twice the CPU for a message. docs/decisions/0010 has the figures.
package http1
