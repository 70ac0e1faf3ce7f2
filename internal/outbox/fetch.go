package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// pieceBytes is how much memory the rows of one statement take, unless one alone takes more.
const pieceBytes = 12 << 20

// fetched are the columns of fetchSQL after the place in the list and the body, and before the number of attempts.
var fetched = []string{colExchange, colRoutingKey, colHeaders, colProperties, colMessageID, colTrackingIDs}

// fetchSQL reads rows in the order of the list. A row whose body is larger than $2 says, or whose other columns
// together are larger than $3 says, comes without them and with their sizes. OFFSET 0 keeps the planner from making the
// text of a column once for its size and once more for itself. A second ORDER BY would have the server collect all
// texts to sort them.
func (t *Table) fetchSQL() string {
	body := "t.{body}"
	if t.bodyJSON() {
		body += "::text"
	}
	texts, shown, sizes := "", "CASE WHEN fits THEN body END", []string{"COALESCE(octet_length(body), 0)::bigint"}
	for i, c := range fetched {
		text := "NULL::text"
		if t.Has(c) {
			text = "t.{" + c + "}::text"
		}
		texts += fmt.Sprintf(", %s AS c%d", text, i)
		shown += fmt.Sprintf(", CASE WHEN fits THEN c%d END", i)
		sizes = append(sizes, fmt.Sprintf("COALESCE(octet_length(c%d), 0)::bigint", i))
	}
	return t.expand(`SELECT n, ` + shown + `, attempts, CASE WHEN NOT fits THEN concat_ws(' ', ` + strings.Join(sizes, ", ") + `) END FROM (
		SELECT *, ` + sizes[0] + ` <= size AND ` + strings.Join(sizes[1:], " + ") + ` <= others AS fits FROM (
			SELECT w.n, w.size, w.others, ` + body + ` AS body, t.{attempts} AS attempts` + texts + `
			FROM unnest($1::{idtype}[], $2::int[], $3::int[]) WITH ORDINALITY AS w(id, size, others, n)
			JOIN {table} t ON t.{id} = w.id ORDER BY w.n OFFSET 0) r OFFSET 0) q`)
}

// refuse lets rows fail that cannot be fetched, and returns the others.
func (p *publishing) refuse(order []*row) []*row {
	limit := p.s.r.o.Memory.Limit()
	return slices.DeleteFunc(slices.Clone(order), func(x *row) bool {
		err := x.check(limit)
		if err != nil {
			p.record(x, err)
		}
		return err != nil
	})
}

// piece is how many of the rows are fetched together, and what memory they take.
func (p *publishing) piece(rows []*row) (n int, memory int64) {
	most := min(pieceBytes, p.s.r.o.Memory.Limit()/8)
	for n < len(rows) && (n == 0 || !p.careful && memory+rows[n].cost() <= most) {
		memory += rows[n].cost()
		n++
	}
	return n, memory
}

// reserve reserves memory for rows. While none is free, confirmed rows give theirs back; when no row of this relay is
// on its way, it waits for other users of the memory.
func (p *publishing) reserve(rows []*row, memory int64) bool {
	account := p.s.r.o.Memory
	for taken := account.Take(memory); !taken; {
		if p.over() {
			return false
		}
		if p.out > 0 {
			p.wait()
			taken = account.Take(memory)
			continue
		}
		ctx, cancel := context.WithDeadline(p.s.stop, p.until)
		taken = account.Wait(memory, ctx.Done())
		cancel()
		if !taken && p.s.stop.Err() == nil {
			p.batch.trouble = fmt.Errorf("no memory is free (SIDECAR_MEMORY): %d rows need %d bytes", len(rows), memory)
		}
	}
	for _, x := range rows {
		x.memory = x.cost()
	}
	return true
}

// give gives back what a row has taken but for so many bytes.
func (p *publishing) give(x *row, keep int64) {
	if x.memory > keep {
		p.s.r.o.Memory.Give(x.memory - keep)
		x.memory = keep
	}
}

// fetch reads the contents of rows and sends them, in their order. Those in p.again have to be fetched once more.
func (p *publishing) fetch(ctx context.Context, rows []*row) error {
	read := 0
	err := p.s.readRows(ctx, rows, func(v [][]byte) (err error) {
		if read, err = place(v[0], rows); err == nil {
			p.send(rows[read-1], v[1:])
		}
		return err
	})
	p.s.flush()
	if ofContents(err) {
		p.careful = true // so that only the row at fault fails
		if len(rows) > 1 {
			p.again = append(p.again, rows[read:]...)
		} else if read == 0 {
			p.record(rows[0], errRow("read the row: %w", err))
		}
		err = p.s.back(ctx)
	}
	for _, x := range rows {
		if !x.away {
			p.give(x, 0)
		}
	}
	return err
}

// readRows fetches rows under a savepoint, to which s.back returns after an error.
func (s *session) readRows(ctx context.Context, rows []*row, each func(values [][]byte) error) error {
	size := array(rows, func(x *row) string { return strconv.Itoa(x.size) })
	others := array(rows, func(x *row) string { return strconv.Itoa(x.others) })
	formats := make([]int16, 4+len(fetched))
	if !s.table.bodyJSON() {
		formats[1] = 1 // bytes as they are
	}
	return s.execute(ctx, each, call{name: stmtSave},
		call{name: stmtFetch, params: [][]byte{ids(rows), size, others}, formats: formats}, call{name: stmtRelease})
}

// back undoes what a statement did that failed under the savepoint.
func (s *session) back(ctx context.Context) error {
	return s.execute(ctx, nil, call{name: stmtBack}, call{name: stmtRelease})
}

// ofContents reports whether an error may be one of the contents of a row: a text that is too long to be made, damaged
// data.
func ofContents(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return isRowError(err) || ok && e.SeverityUnlocalized == "ERROR" && strings.HasPrefix(e.Code, "XX")
}
