package amqpwire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"sidecar/internal/budget"
)

// deliveryCost is what a message costs beside its body and headers, in bytes: the values made of it, and the buffers of
// its request.
const deliveryCost = 2 << 10

// defaultPatience is how long a delivery waits for memory before it goes to a file: RabbitMQ ends a connection that has
// not been read for 30 seconds.
const defaultPatience = 10 * time.Second

// errGone ends the reading of a connection that ended while it waited for memory.
var errGone = fmt.Errorf("while waiting for memory: %w", net.ErrClosed)

var errNoMemory = errors.New("other messages use all of the memory")

// hold takes the memory for a delivery whose body has size bytes, and waits for it if necessary: the socket is not read
// during the wait, which stops the broker. A body that can never fit, or not soon, goes to a file. Without room for a
// file it is read and dropped, and the delivery says so.
//
// A delivery to a consumer with a share of the memory never waits, because all others would wait with it.
func (in *intake) hold(d *Delivery, size int64, share *budget.Account) error {
	memory := cmp.Or(share, in.o.Memory)
	// The table is there as bytes, as the texts cut out of it, and decoded, perhaps once more in the message that replaces
	// it.
	least := min(deliveryCost+2*int64(len(d.table))+2*int64(tableCost(d.table)), memory.Limit())
	n := least + size
	if cap(d.Body) > deliveryCost+2*int(size) {
		d.Body = nil // its memory is that of a larger message, and would not be counted
	}
	reserve := in.reserve
	if share != nil {
		reserve = share.Take
	}
	if n <= memory.Limit() && reserve(n) {
		d.memory, d.held = memory, n
		d.Body = slices.Grow(d.Body, int(size))
		return nil
	}
	err := errNoMemory
	if reserve(least) {
		d.memory, d.held = memory, least
		if size == 0 {
			return nil
		}
		if d.spooled, err = in.o.Spool.create(size); err == nil {
			d.Body = d.spooled.memory[:0]
			return nil
		}
	} else {
		d.table, d.encoded = d.table[:0], false
	}
	if in.over.Err() != nil {
		return errGone
	}
	d.Body, d.Missing, d.MissingWhy = nil, max(size, 1), err
	return nil
}

// reserve takes n bytes as soon as they are free; false when the connection ends before, or patience is over. What is
// as large as something that waited in vain does not wait again until some of it fits.
func (in *intake) reserve(n int64) bool {
	pressed := in.pressed > 0 && n >= in.pressed
	ok := in.o.Memory.Take(n)
	if !ok && !pressed {
		ok = in.await(n)
	}
	switch {
	case !ok && !pressed:
		in.pressed = n
	case ok && pressed:
		in.pressed = 0
	}
	return ok
}

func (in *intake) await(n int64) bool {
	in.full.Store(true)
	defer func() {
		now := time.Now()
		in.resumed.Store(&now)
		in.full.Store(false)
	}()
	ctx, cancel := context.WithTimeout(in.over, in.o.Patience)
	defer cancel()
	return in.o.Memory.Wait(n, ctx.Done())
}

// Waited reports whether reading has waited for memory at any time since then.
func (in *intake) Waited(since time.Time) bool {
	if in.full.Load() {
		return true
	}
	resumed := in.resumed.Load() // behind full: it is stored before full is cleared
	return resumed != nil && resumed.After(since)
}
