package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/rows"
)

// database is the PostgreSQL that scripts/postgres.sh has started.
type database struct {
	dsn    string // past all wires; its sessions call themselves ours
	dir    string
	script string
}

// ours is what the sessions of this side call themselves. All others are the relays'.
const ours = "chaos"

// databaseFromEnvironment finds what scripts/postgres.sh says it has started; nil when the run has no outbox.
func databaseFromEnvironment(o options) (*database, error) {
	if o.rows() == 0 {
		return nil, nil
	}
	dsn, dir := os.Getenv("POSTGRES_DSN"), os.Getenv("POSTGRES_DIR")
	if dsn == "" || dir == "" {
		return nil, errors.New("POSTGRES_DSN and POSTGRES_DIR are not set: run this with scripts/chaos.sh, or with -outbox " +
			"0 -rollback 0")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("application_name", ours)
	u.RawQuery = q.Encode()
	return &database{dsn: u.String(), dir: dir, script: filepath.Join(filepath.Dir(o.script), "postgres.sh")}, nil
}

func (d *database) addr() string {
	u, err := url.Parse(d.dsn)
	if err != nil {
		return ""
	}
	return u.Host
}

// behind is how a sidecar reaches it: by the wire at an address, with a password that is not checked and that must
// turn up in no log.
func (d *database) behind(addr, password string) string {
	u, err := url.Parse(d.dsn)
	if err != nil {
		return ""
	}
	u.Host, u.User, u.RawQuery = addr, url.UserPassword(u.User.Username(), password), "sslmode=disable"
	return u.String()
}

func (d *database) sh(command string) error { return script(d.script, command, d.dir) }

// query runs one statement on a session of its own.
func (d *database) query(ctx context.Context, sql string, each func(row [][]byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, d.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	result := conn.ExecParams(ctx, sql, nil, nil, nil, nil)
	for result.NextRow() {
		if err == nil {
			err = each(result.Values())
		}
	}
	_, cerr := result.Close()
	return errors.Join(err, cerr)
}

// number is the one value that a statement gives.
func (d *database) number(ctx context.Context, sql string) (n int, err error) {
	qerr := d.query(ctx, sql, func(row [][]byte) error {
		n, err = strconv.Atoi(string(row[0]))
		return err
	})
	return n, qerr
}

// waiting counts the rows that are neither sent nor quarantined.
func (d *database) waiting(ctx context.Context) (int, error) {
	return d.number(ctx, "SELECT count(*) FROM outbox WHERE sent_at IS NULL AND quarantined_at IS NULL")
}

// terminate ends the relays' sessions as an operator would.
func (d *database) terminate(ctx context.Context) error {
	n, err := d.number(ctx, `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND application_name <> '`+ours+`') t`)
	if err == nil && n == 0 {
		err = errors.New("no session to end")
	}
	return err
}

// dump writes down what the table holds.
func (d *database) dump(ctx context.Context, to *ledger.Writer) error {
	return d.query(ctx, `SELECT id, message_id, coalesce((extract(epoch FROM sent_at) * 1000000)::bigint * 1000, 0), attempts,
		coalesce(last_error, ''), (quarantined_at IS NOT NULL)::int FROM outbox ORDER BY id`, func(row [][]byte) error {
		var numbers [4]int64
		for i, column := range []int{0, 2, 3, 5} {
			var err error
			if numbers[i], err = strconv.ParseInt(string(row[column]), 10, 64); err != nil {
				return err
			}
		}
		return to.Write(ledger.Stored{
			Row: numbers[0], ID: string(row[1]), SentAt: numbers[1], Attempts: int(numbers[2]) - rows.Spent,
			Error: string(row[4]), Quarantined: numbers[3] == 1,
		})
	})
}
