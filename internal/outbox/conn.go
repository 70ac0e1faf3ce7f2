package outbox

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ErrDSN is a connection string that cannot be used. The text shows no part of it that could be the password.
var ErrDSN = errors.New("not a connection string that can be used")

// Bounds of what a connection may take.
const (
	connectTimeout = 10 * time.Second
	// defaultTimeout bounds one statement, on the server. The client waits a little longer, so that the server's own error
	// comes first and the connection stays.
	defaultTimeout = 30 * time.Second
	defaultMargin  = 5 * time.Second

	// readBuffer is what one read of a connection takes at most. The driver alone takes 8 KiB: a few rows.
	readBuffer = 64 << 10
)

// Database is where the outbox is.
type Database struct {
	DSN     func() (string, error) // read at every connect
	Name    string                 // application_name, unless the DSN has one
	Timeout time.Duration          // of one statement; 0 = 30 s

	margin time.Duration // for which the client waits longer than the server; 0 = 5 s
}

func (d *Database) timeout() time.Duration { return cmp.Or(d.Timeout, defaultTimeout) }

// Connect opens a connection. Its statements are bounded by Timeout on the server; notice takes the notifications and
// may be nil. The error shows no password.
func (d *Database) Connect(ctx context.Context, notice func()) (*pgconn.PgConn, error) {
	dsn, err := d.DSN()
	if err != nil && dsn == "" {
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout <= 0 || cfg.ConnectTimeout > connectTimeout {
		cfg.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second,
		Interval: 5 * time.Second, Count: 3}}
	cfg.DialFunc = dialer.DialContext
	cfg.RuntimeParams["application_name"] = cmp.Or(cfg.RuntimeParams["application_name"], d.Name)
	cfg.AfterConnect = d.prepare
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(bufio.NewReaderSize(r, readBuffer), w)
	}
	if notice != nil {
		cfg.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { notice() }
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+defaultMargin)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// prepare sets parameters of the whole session. They are not in the startup packet, because poolers refuse them there.
func (d *Database) prepare(ctx context.Context, conn *pgconn.PgConn) error {
	ms := d.timeout().Milliseconds()
	// A planner without statistics would sort a million rows to take five hundred. The index gives them in order.
	// A relay that hangs, or whose machine has gone, lets its rows go.
	return exec(ctx, conn, fmt.Sprintf(`SET enable_seqscan = off; SET enable_bitmapscan = off; SET statement_timeout = %d;
		SET lock_timeout = %d; SET idle_in_transaction_session_timeout = %d;
		SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
		SET DateStyle = 'ISO'; SET bytea_output = 'hex'`, ms, ms/3, 6*ms))
}

// Conn returns the connection itself, for other functions of this package's API.
type Conn = pgconn.PgConn

// Close ends a connection without waiting long for it. A statement that was given up is cancelled on the server
// meanwhile: a process that ended before would leave it running.
func Close(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
}

// exec runs statements that give no rows.
func exec(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	return conn.Exec(ctx, sql).Close()
}

// CheckDSN says what is wrong with a connection string: ErrDSN. It connects to nothing. plaintext is a host, other than
// this machine, to which passwords and messages could travel unencrypted; "" if there is none.
func CheckDSN(dsn string) (plaintext string, err error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return "", err
	}
	for _, f := range append(cfg.Fallbacks, &pgconn.FallbackConfig{Host: cfg.Host, TLSConfig: cfg.TLSConfig}) {
		if f.TLSConfig == nil && !local(f.Host) {
			return f.Host, nil
		}
	}
	return "", nil
}

func local(host string) bool {
	if host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// What is wrong with a connection string of one of the two forms.
//
//nolint:gosec // forms, and no real passwords
const (
	sayURI = "not a URI of the form postgres://user:password@host:5432/database?sslmode=verify-full, with every special " +
		"character of the password percent-encoded"
	sayWords = "not of the form host=… dbname=… user=… password='…'"
)

func parseDSN(dsn string) (*pgconn.Config, error) {
	scheme, rest, found := strings.Cut(dsn, "://")
	known := scheme == "postgres" || scheme == "postgresql"
	if found && known && loosePassword(rest) {
		return nil, fmt.Errorf("%w: %s", ErrDSN, sayURI)
	}
	cfg, err := pgconn.ParseConfig(dsn)
	switch {
	case err == nil:
		return cfg, nil
	case found && !known && !strings.ContainsAny(scheme, " ='"):
		return nil, fmt.Errorf("%w: a URI of it begins with postgres:// or postgresql://", ErrDSN)
	}
	return nil, fmt.Errorf("%w: %w", ErrDSN, parseProblem(err))
}

// parseProblem returns what the driver says about a connection string that it could not parse. Its text repeats the
// string, and behind a colon or a bracket values of it, any of which may hold the password.
func parseProblem(err error) error {
	text := sayWords
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		quiet := *e
		quiet.ConnString = ""
		text = strings.TrimPrefix(quiet.Error(), "cannot parse ``: ")
	}
	text, _, _ = strings.Cut(text, "(")
	text, _, _ = strings.Cut(text, ":")
	switch text = strings.TrimSpace(text); text {
	case "failed to parse as URL":
		text = sayURI
	case "failed to parse as keyword/value":
		text = sayWords
	case "failed to configure TLS":
		return errors.Unwrap(err) // names of files and of settings
	}
	return errors.New(text)
}

// loosePassword reports whether a URI has an '@' that is not percent-encoded besides the one before the host: what is
// left of the password would become the name of a host, or of a database, and be shown, and asked for in the network.
func loosePassword(afterScheme string) bool {
	if i := strings.IndexAny(afterScheme, "?#"); i >= 0 {
		afterScheme = afterScheme[:i]
	}
	authority, path, _ := strings.Cut(afterScheme, "/")
	return strings.Count(authority, "@") > 1 || strings.Contains(path, "@")
}
