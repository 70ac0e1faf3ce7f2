// Package outbox publishes what an app has written into a table of its own database: it claims rows, publishes them,
// waits for the broker's confirm of each and only then marks it as sent, all in one transaction. A row that was
// committed is published at least once; one that was rolled back never is.
//
// It keeps no cursor, because rows are committed in another order than that of their ids. It refuses to read the app's
// own tables, to change rows that it has not claimed, and to hold a transaction open while the broker is away.
package outbox
