package outbox

import (
	"strconv"
	"strings"

	"sidecar/internal/amqpvalue"
)

// Bounds of a row, in bytes of its columns' texts. A row beyond one of them fails without being read.
const (
	// maxBody is the largest body that any broker takes.
	maxBody = 512 << 20
	// maxColumn bounds headers, properties and tracking ids: what they become has to fit one frame of 128 KiB.
	maxColumn = 1 << 20
	// maxKey bounds ordering keys and ids. A row with a longer id is not claimed: the relay could not mark it.
	maxKey = 4 << 10

	// maxGuess is how many bytes of columns beside the body are fetched before their exact sizes are known.
	maxGuess = 64 << 10
)

// What the bytes of a row cost in memory until the broker has confirmed it.
const (
	// copies of each byte: pgconn reads a row into a buffer of up to twice its size, and the row's own copy is made from
	// that. TestCostOfABody measures it. A message that the broker returns comes after the buffer is free.
	copies  = 3
	rowCost = 1 << 10 // of a row without any bytes
)

// cost is how many bytes of memory a row takes at most, with so many bytes of body and so many of other columns, of
// which three are decoded: most when all are as large.
func cost(body, others int) int64 {
	return rowCost + copies*int64(body+others) + 3*amqpvalue.JSONCost((others+2)/3)
}

// cost is how many bytes of memory the row takes at most.
func (x *row) cost() int64 { return cost(x.size, x.others) }

// guess bounds the sizes that the claim gave: exact is false for a body whose text the database has not made.
func (x *row) guess(exact bool, limit int64) {
	x.others = min(x.others, maxGuess)
	if !exact {
		x.size = int(min(int64(x.size), maxBody, max(0, (limit-cost(0, x.others))/copies)))
	}
}

// check says why a row cannot be fetched into so much memory; nil if it can.
func (x *row) check(limit int64) error {
	switch {
	case x.keySize > maxKey:
		return errRow("%s of %d bytes: at most %d are possible", colOrderingKey, x.keySize, maxKey)
	case x.size > maxBody:
		return errRow("a body of %d bytes: no broker takes more than %d", x.size, maxBody)
	case x.cost() > limit:
		return errRow("a body of %d bytes and other columns of %d take %d bytes of memory while they are sent: "+
			"SIDECAR_MEMORY is %d", x.size, x.others, x.cost(), limit)
	}
	return nil
}

// measured takes over the sizes that the database has found when it made the texts: of the body and of each column in
// fetched. The error says why the row cannot be fetched with them.
func (x *row) measured(sizes string, limit int64) error {
	if x.exact {
		return errRow("larger each time that it is read, last %s bytes", sizes)
	}
	x.exact, x.others = true, 0
	for i, field := range strings.Fields(sizes) {
		n, _ := strconv.Atoi(field)
		if i == 0 {
			x.size = n
			continue
		}
		if err := checkColumn(fetched[i-1], n); err != nil {
			return err
		}
		x.others += n
	}
	return x.check(limit)
}

// checkColumn says that a column of a row is too large.
func checkColumn(name string, size int) error {
	most := maxColumn
	if name == colExchange || name == colRoutingKey || name == colMessageID {
		most = amqpvalue.ShortMax
	}
	if size > most {
		return errRow("%s of %d bytes: at most %d are possible", name, size, most)
	}
	return nil
}
