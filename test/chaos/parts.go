package main

import (
	"flag"
	"os"
	"strings"

	"sidecar/test/chaos/app"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/post"
	"sidecar/test/chaos/publish"
	"sidecar/test/chaos/rows"
)

// The parts of a run that are processes of their own. Each reads in run.json what the run is.

func serveApp(args []string) error {
	f := flag.NewFlagSet("chaos app", flag.ContinueOnError)
	dir, addr := f.String("dir", ".", "directory of the ledgers"), f.String("addr", "127.0.0.1:8080", "where to listen")
	if err := f.Parse(args); err != nil {
		return err
	}
	return app.Run(*dir, *addr)
}

// part parses the flags that all sources have.
func part(name, where string, args []string) (dir, url string, rate int, run ledger.Run, err error) {
	f := flag.NewFlagSet("chaos "+name, flag.ContinueOnError)
	f.StringVar(&dir, "dir", ".", "directory of the ledgers")
	f.StringVar(&url, "url", "", where)
	f.IntVar(&rate, "rate", 500, "messages per second at most")
	if err = f.Parse(args); err == nil {
		err = ledger.ReadJSON(dir, ledger.RunFile, &run)
	}
	return dir, url, rate, run, err
}

func publishAll(args []string) error {
	dir, url, rate, run, err := part("publish", "of the broker, several separated by commas", args)
	if err != nil {
		return err
	}
	return publish.Run(publish.Options{
		Dir: dir, URL: strings.Split(url, ","), Exchange: mainExchange, Run: run, Canary: run.Secrets[canaryBody], Rate: rate,
	}, os.Stdin, os.Stdout)
}

func postAll(args []string) error {
	dir, url, rate, run, err := part("post", "of the sidecar's publish listener", args)
	if err != nil {
		return err
	}
	return post.Run(post.Options{
		Dir: dir, URL: url, Token: run.Secrets[canaryToken], Run: run, Canary: run.Secrets[canaryBody], Rate: rate,
	}, os.Stdin, os.Stdout)
}

func writeRows(args []string) error {
	dir, url, rate, run, err := part("rows", "of the database", args)
	if err != nil {
		return err
	}
	return rows.Run(rows.Options{
		Dir: dir, DSN: url, Lonely: lonelyExchange, Run: run, Canary: run.Secrets[canaryBody], Rate: rate,
		Rollback: run.Rollback,
	}, os.Stdin, os.Stdout)
}
