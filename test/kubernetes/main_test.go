//go:build kubernetes

// Package kubernetes tests the charts, and the sidecar in a pod, on a cluster: make test-kubernetes. Nothing here
// asserts how long something took; what never comes fails with the pods' descriptions and logs.
//
// A test begins with newScene, which gives it a namespace, a name of a service, a ledger and a connection to the
// broker.
package kubernetes

import (
	"fmt"
	"os"
	"testing"
)

// env is what scripts/kubernetes.sh says.
var env struct {
	host     string // of this process, as pods reach it
	amqpPods string // URL of the broker as pods reach it
	amqp     string // URL of the broker as this process reaches it
	image    string // of the sidecar, with its tag; it is the chart's default
	app      string // image of test/kubernetes/app
	helm3    string
	helm4    string
	repo     string // root of the repository
}

func TestMain(m *testing.M) {
	missing := ""
	for name, to := range map[string]*string{
		"E2E_HOST": &env.host, "E2E_AMQP_URL": &env.amqpPods, "E2E_AMQP_URL_LOCAL": &env.amqp, "E2E_IMAGE": &env.image,
		"E2E_APP_IMAGE": &env.app, "E2E_HELM3": &env.helm3, "E2E_HELM4": &env.helm4,
	} {
		if *to = os.Getenv(name); *to == "" {
			missing += " " + name
		}
	}
	env.repo = "../.."
	if missing != "" {
		fmt.Fprintln(os.Stderr, "make test-kubernetes sets what is missing here:"+missing)
		os.Exit(1)
	}
	if err := ledgers.listen(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
