//go:build kubernetes

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
)

// The namespaces of the tests: one with nothing special, one with defaults, one that is left alone, one
// that admits restricted pods only.
const (
	space  = "inject"
	plain  = "inject-defaults"
	closed = "inject-closed"
	strict = "inject-strict"
)

const fixtures = `
{apiVersion: v1, kind: Namespace, metadata: {name: ` + space + `}}
---
apiVersion: v1
kind: Namespace
metadata:
  name: ` + plain + `
  annotations: {amqp-sidecar/broker-secret: shared, amqp-sidecar/queue-type: quorum, amqp-sidecar/concurrency: "3"}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ` + closed + `, labels: {amqp-sidecar/inject: "false"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ` + strict + `, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: more, namespace: ` + space + `}
data: {SIDECAR_BINDINGS: "orders.events:order.*", SIDECAR_LOG_LEVEL: debug}
`

// settings are annotations without amqp-sidecar/ in front.
type settings map[string]string

// usual is what every pod needs; with adds to it.
var usual = settings{"service": "orders-billing", "broker-secret": "rabbit"}

func with(more settings) settings {
	all := maps.Clone(usual)
	maps.Copy(all, more)
	return all
}

// one is the spec of the plainest pod.
const one = `{"containers": [{"name": "app", "image": "app"}]}`

// Pod is the part of a pod that the tests check. Everything else is in raw.
type Pod struct {
	Metadata struct {
		Namespace   string
		Annotations map[string]string
	}
	Spec struct {
		TerminationGracePeriodSeconds int
		InitContainers, Containers    []Container
		Volumes                       []struct {
			Name   string
			Secret *struct{ SecretName string }
		}
	}
	raw json.RawMessage
}

// Container is the part of a container that the tests check.
type Container struct {
	Name, Image string
	Env         []variable
	EnvFrom     []struct{ ConfigMapRef struct{ Name string } }
	Resources   struct{ Requests, Limits map[string]string }
	Lifecycle   struct {
		PreStop struct {
			HTTPGet struct {
				Path string
				Port int
			}
		}
	}
}

type variable struct {
	Name, Value string
	ValueFrom   struct{ FieldRef struct{ FieldPath string } }
}

// find returns a container by its name, nil when there is none.
func (p *Pod) find(name string) *Container {
	for _, all := range [][]Container{p.Spec.InitContainers, p.Spec.Containers} {
		if i := slices.IndexFunc(all, func(c Container) bool { return c.Name == name }); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// waits returns the port at which the container asks whether it may stop, 0 when it does not ask.
func (c *Container) waits() int {
	if hook := c.Lifecycle.PreStop.HTTPGet; hook.Path == "/drained" {
		return hook.Port
	}
	return 0
}

// object is anything in JSON.
type object = map[string]any

// pod builds a labelled pod as a controller would make it: without a name.
func pod(s settings, spec string) object {
	annotations := object{}
	for key, value := range s {
		annotations["amqp-sidecar/"+key] = value
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "spec": json.RawMessage(spec),
		"metadata": object{
			"generateName": "app-", "namespace": space, "labels": object{"amqp-sidecar/inject": "true"}, "annotations": annotations,
		},
	}
}

// metadata changes a field of a pod's metadata.
func metadata(p object, key string, value any) object {
	meta := maps.Clone(p["metadata"].(object))
	meta[key] = value
	p["metadata"] = meta
	return p
}

// ask sends a pod through the admission of the API server, which keeps nothing of it.
func ask(p object) (*Pod, error) {
	namespace := p["metadata"].(object)["namespace"].(string)
	raw, err := call(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", p)
	if err != nil {
		return nil, err
	}
	got := &Pod{raw: raw}
	return got, json.Unmarshal(raw, got)
}

// call speaks with the API server. Its refusals are errors with its message.
func call(method, path string, body any) (json.RawMessage, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, "http://localhost"+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := api.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		var status struct{ Message string }
		if err := json.Unmarshal(answer, &status); err != nil {
			return nil, fmt.Errorf("%s: %s", resp.Status, answer)
		}
		return nil, fmt.Errorf("%s: %s", resp.Status, status.Message)
	}
	return answer, nil
}

// without returns a pod's JSON as a value, less what differs between any two requests and their namespaces.
func (p *Pod) without() object {
	var all object
	if err := json.Unmarshal(p.raw, &all); err != nil {
		panic(err) // it was decoded once
	}
	meta := all["metadata"].(object)
	for _, key := range []string{"name", "namespace", "uid", "creationTimestamp", "managedFields"} {
		delete(meta, key)
	}
	return all
}

func same(a, b *Pod) bool { return reflect.DeepEqual(a.without(), b.without()) }
