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

// ErrNoMemory is why a delivery has neither a body nor headers.
var ErrNoMemory = errors.New("other messages use all of the memory")

// hold takes the memory for a delivery whose body has size bytes, and waits for it if necessary: the socket is not read
// during the wait, which stops the broker. A body that can never fit, or not soon, goes to a file. Without room for a
// file it is read and dropped, and the delivery says so.
//
// A delivery to a consumer with a share of the memory does not wait, because all others would wait with it. Its body is
// in memory if the share has room for it, and goes to a file at once otherwise. An eighth of the share is not for
// bodies: bodies that fill it must not keep the headers of others out.
func (in *intake) hold(d *Delivery, size int64, share *budget.Account) error {
	memory := cmp.Or(share, in.o.Memory)
	// The table is there as bytes, as the texts cut out of it, and decoded, perhaps once more in the message that replaces
	// it.
	least := min(deliveryCost+2*int64(len(d.table))+2*int64(tableCost(d.table)), memory.Limit())
	n := least + size
	if cap(d.Body) > deliveryCost+2*int(size) {
		d.Body = nil // its memory is that of a larger message, and would not be counted
	}
	d.memory = memory
	if in.takeWhole(n, share) {
		d.place(n, size)
		return nil
	}
	err, lacked := ErrNoMemory, least
	if share != nil && share.Take(least) || share == nil && in.reserve(least, in.o.Patience) {
		d.held = least
		if size == 0 {
			return nil
		}
		if d.spooled, err = in.o.Spool.create(size); err == nil {
			d.Body = d.spooled.memory[:0]
			return nil
		}
		if share != nil && share.Take(size) { // more than the share: a single body may be
			d.place(n, size)
			return nil
		}
		lacked = n
	} else {
		d.table, d.encoded = d.table[:0], false
	}
	if in.over.Err() != nil {
		return errGone
	}
	d.Body, d.Missing, d.MissingWhy, d.lacked = nil, max(size, 1), err, lacked
	return nil
}

// takeWhole takes the n bytes of a delivery with its body.
func (in *intake) takeWhole(n int64, share *budget.Account) bool {
	switch {
	case n > in.o.Memory.Limit():
		return false
	case share == nil:
		return in.reserve(n, in.o.Patience)
	}
	return share.Held()+n <= share.Share()/8*7 && share.Take(n)
}

// place makes room for a body of size bytes: n bytes of memory are taken for the delivery.
func (d *Delivery) place(n, size int64) {
	d.held = n
	d.Body = slices.Grow(d.Body, int(size))
}

// reserve takes n bytes as soon as they are free; false when the connection ends before, or patience is over. What is
// as large as something that waited in vain does not wait again until some of it fits.
func (in *intake) reserve(n int64, patience time.Duration) bool {
	pressed := in.pressed > 0 && n >= in.pressed
	ok := in.o.Memory.Take(n)
	if !ok && !pressed {
		ok = in.await(n, patience)
	}
	switch {
	case !ok && !pressed:
		in.pressed = n
	case ok && pressed:
		in.pressed = 0
	}
	return ok
}

func (in *intake) await(n int64, patience time.Duration) bool {
	in.full.Store(true)
	defer func() {
		now := time.Now()
		in.resumed.Store(&now)
		in.full.Store(false)
	}()
	ctx, cancel := context.WithTimeout(in.over, patience)
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
