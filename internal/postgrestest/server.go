package postgrestest

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Server is a PostgreSQL of one test alone, which may stop, kill and freeze it. Its port stays the same.
type Server struct {
	DSN string // as the superuser, of the database postgres

	t   testing.TB
	dir string
	env []string
}

// Start boots a server; lines are more lines for its postgresql.conf. It does not wait for the disk, which only a
// machine that crashes would show. It is removed when the test ends.
func Start(t testing.TB, lines ...string) *Server {
	t.Helper()
	//nolint:usetesting // the parent of TempDir is the caller's alone: the server's own user could not enter it
	dir, err := os.MkdirTemp("", "sidecar-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, dir: dir, env: append(os.Environ(), "POSTGRES_FSYNC=off",
		"POSTGRES_EXTRA_CONF="+strings.Join(lines, "\n"))}
	t.Cleanup(func() { s.script("rm", dir) })
	s.Restart()
	return s
}

// Restart boots the server again after Immediate or Kill, and waits until it has recovered.
func (s *Server) Restart() {
	s.t.Helper()
	found := regexp.MustCompile(`POSTGRES_DSN='(\S+)'`).FindStringSubmatch(s.script("start", s.dir, "0"))
	if found == nil {
		s.t.Fatal("postgres.sh start does not print the DSN")
	}
	s.DSN = found[1]
}

// Kill ends all of its processes by SIGKILL.
func (s *Server) Kill() { s.t.Helper(); s.script("kill", s.dir) }

// Freeze stops all of its processes: connections stay open, and nothing answers.
func (s *Server) Freeze() { s.t.Helper(); s.script("freeze", s.dir) }

// Thaw lets it go on.
func (s *Server) Thaw() { s.t.Helper(); s.script("thaw", s.dir) }

// New makes an empty database on this server. It is gone with the server.
func (s *Server) New() *Database {
	s.t.Helper()
	name := unique(s.t)
	admin := &Database{DSN: s.DSN, t: s.t}
	defer admin.close()
	admin.Exec(`CREATE DATABASE "` + name + `"`)
	d := &Database{DSN: with(s.t, s.DSN, func(u *url.URL) { u.Path = "/" + name }), Name: name, t: s.t}
	s.t.Cleanup(d.close)
	return d
}

func (s *Server) script(args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("POSTGRES_SCRIPT"), args...)
	var said strings.Builder
	cmd.Env, cmd.Stderr = s.env, &said
	// The server inherits neither: waiting for the end of a pipe would be waiting for the server's.
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("postgres.sh %v (POSTGRES_SCRIPT): %v\n%s", args, err, said.String())
	}
	return string(out)
}
