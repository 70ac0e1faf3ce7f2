//go:build kubernetes

// Package kubernetes tests the charts, and the sidecar in a pod, on a cluster: make test-kubernetes. Nothing here
// asserts how long something took; what never comes fails with the pods' descriptions and logs.
//
// A test begins with newScene, which gives it a namespace, a name of a service, a ledger and a connection to the
// broker.
package kubernetes

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

const root = "../.." // of the repository

// env is what scripts/kubernetes.sh says.
var env struct {
	host     string // of this process, as pods reach it
	amqpPods string // URL of the broker as pods reach it
	amqp     string // URL of the broker as this process reaches it
	image    string // of the sidecar, with its tag; it is the chart's default
	app      string // image of test/kubernetes/app
	helm3    string
	helm4    string
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

// scene is what a test plays in. It and all in it are removed at the end.
type scene struct {
	t         testing.TB
	namespace string
	service   string // name of the service, and of the release; of no other test
	ledger    *ledger
	sent      atomic.Int64 // messages
	helmHome  string
}

// newScene makes a namespace with the Secret "broker", whose key "url" leads to the broker.
func newScene(t testing.TB) *scene {
	t.Helper()
	tag := strings.ToLower(rand.Text()[:6])
	s := &scene{
		t: t, namespace: "e2e-" + tag, service: "e" + tag + "-billing", ledger: ledgers.open(tag), helmHome: t.TempDir(),
	}
	ch := brokertest.Channel(t, env.amqp)
	must.Get(command("", "kubectl", "create", "namespace", s.namespace))(t)
	t.Cleanup(func() {
		if t.Failed() {
			s.autopsy()
		}
		// Not waited for: the pods take their time to end, and no other test sees them.
		if _, err := command("", "kubectl", "delete", "namespace", s.namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
		s.remove(ch)
	})
	s.secret("broker", env.amqpPods)
	return s
}

// secret creates or changes a Secret with a broker's URL.
func (s *scene) secret(name, url string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": %q}, "stringData": {"url": %q}}`, name, url))
}

// helm runs Helm 4 in the namespace of the scene; a failure fails the test.
func (s *scene) helm(args ...string) string {
	s.t.Helper()
	return s.helmOf(env.helm4, args...)
}

// helmOf is helm with a binary of the caller's choice. Nothing is read from or written to the caller's home.
func (s *scene) helmOf(binary string, args ...string) string {
	s.t.Helper()
	home := []string{"HELM_CACHE_HOME=" + s.helmHome, "HELM_CONFIG_HOME=" + s.helmHome, "HELM_DATA_HOME=" + s.helmHome}
	return must.Get(command("", "env", append(append(home, binary), append([]string{"--namespace", s.namespace}, args...)...)...))(s.t)
}

// chart is the path of the chart.
func chart() string { return filepath.Join(root, "deploy/helm/amqp-sidecar") }

// install installs the chart with the two values that it needs, and these on top.
func (s *scene) install(args ...string) { s.t.Helper(); s.helm(s.release("install", args...)...) }

// upgrade is install for a release that is there. Values of before are forgotten.
func (s *scene) upgrade(args ...string) { s.t.Helper(); s.helm(s.release("upgrade", args...)...) }

func (s *scene) release(verb string, args ...string) []string {
	repository, tag, _ := strings.Cut(env.app, ":")
	image := "app.image.repository=" + repository + ",app.image.tag=" + tag
	return append([]string{verb, s.service, chart(), "--set-string", image, "--set", "broker.existingSecret=broker"}, args...)
}

// ofRelease selects what belongs to the release, but not the pod of its test, which Helm leaves behind.
func (s *scene) ofRelease() string {
	return "app.kubernetes.io/name!=amqp-sidecar-test,app.kubernetes.io/instance=" + s.service
}
