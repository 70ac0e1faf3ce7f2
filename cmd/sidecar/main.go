// Command sidecar consumes a service's RabbitMQ queue and POSTs every message to the local app. It only chooses the
// subcommand; everything else is in internal packages.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
