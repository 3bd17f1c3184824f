// The part of a kubelet that metrics-server scrapes, on an address of its own: GET /metrics/resource over HTTPS with a certificate that
// nobody has signed. It asks the API server, as a kubelet does, to whom the bearer token belongs, and whether that user may read the
// metrics of the node; and it writes the metrics with the library, the names and the labels of kubelet 1.36. What the containers use
// is made up: the same share of a CPU and the same memory all the time.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
)

const mebibyte = 1 << 20

var (
	container = []string{"container", "pod", "namespace"}
	pod       = []string{"pod", "namespace"}

	nodeCPU         = stable("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil)
	nodeMemory      = stable("node_memory_working_set_bytes", "Current working set of the node in bytes", nil)
	containerCPU    = stable("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", container)
	containerMemory = stable("container_memory_working_set_bytes", "Current working set of the container in bytes", container)
	containerStart  = stable("container_start_time_seconds", "Start time of the container since unix epoch in seconds", container)
	podCPU          = stable("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", pod)
	podMemory       = stable("pod_memory_working_set_bytes", "Current working set of the pod in bytes", pod)
	scrapeError     = stable("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil)
)

func stable(name, help string, labels []string) *metrics.Desc {
	return metrics.NewDesc(name, help, labels, nil, metrics.STABLE, "")
}

// collector has the figures of the node and of the Pod default/web with its two containers.
type collector struct {
	metrics.BaseStableCollector
	// When everything started: a whole second.
	start time.Time
}

func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{nodeCPU, nodeMemory, containerStart, containerCPU, containerMemory, podCPU, podMemory, scrapeError} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	// The counters are those of the last whole second, so that every rate that is computed from two of them is exact.
	now := time.Now().Truncate(time.Second)
	sample := func(desc *metrics.Desc, kind metrics.ValueType, value float64, labels ...string) {
		ch <- metrics.NewLazyMetricWithTimestamp(now, metrics.NewLazyConstMetric(desc, kind, value, labels...))
	}
	usage := func(cpu, memory *metrics.Desc, cores float64, mebibytes int, labels ...string) {
		sample(cpu, metrics.CounterValue, cores*now.Sub(c.start).Seconds(), labels...)
		sample(memory, metrics.GaugeValue, float64(mebibytes*mebibyte), labels...)
	}
	usage(nodeCPU, nodeMemory, 0.5, 2048)
	usage(containerCPU, containerMemory, 0.25, 64, "app", "web", "default")
	usage(containerCPU, containerMemory, 0.125, 32, "sidecar", "web", "default")
	usage(podCPU, podMemory, 0.375, 96, "web", "default")
	for _, name := range []string{"app", "sidecar"} {
		ch <- metrics.NewLazyConstMetric(containerStart, metrics.GaugeValue, float64(c.start.Unix()), name, "web", "default")
	}
	ch <- metrics.NewLazyConstMetric(scrapeError, metrics.GaugeValue, 0)
}

// guarded lets in who has a token of a user with the right to get the metrics of the node. Without a client CA and without anonymous
// users, nothing but a bearer token authenticates.
func guarded(node string, client kubernetes.Interface, handler http.Handler) (http.Handler, error) {
	authentication := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL:                 time.Minute,
		WebhookRetryBackoff:      options.DefaultAuthWebhookRetryBackoff(),
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: 10 * time.Second,
	}
	authenticate, _, err := authentication.New()
	if err != nil {
		return nil, err
	}
	authorization := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             time.Minute,
		DenyCacheTTL:              time.Second,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}
	authorize, err := authorization.New()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known, err := authenticate.AuthenticateRequest(r)
		if err != nil || !known {
			log.Printf("unauthorized: %v", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, reason, err := authorize.Authorize(r.Context(), authorizer.AttributesRecord{
			User: who.User, Verb: "get", APIVersion: "v1", Resource: "nodes", Name: node, Subresource: "metrics",
			ResourceRequest: true, Path: r.URL.Path,
		})
		log.Printf("%s from %s: %v %s %v", r.URL.Path, who.User.GetName(), decision == authorizer.DecisionAllow, reason, err)
		if decision != authorizer.DecisionAllow {
			http.Error(w, "Forbidden (user="+who.User.GetName()+", verb=get, resource=nodes, subresource(s)=[metrics])", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

func run(address, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(&collector{start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics/resource", metrics.HandlerFor(registry, metrics.HandlerOpts{ErrorHandling: metrics.ContinueOnError}))
	handler, err := guarded(node, client, mux)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	server := http.Server{Addr: address, Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	return server.ListenAndServeTLS("", "")
}

func main() {
	address := flag.String("address", "127.0.0.1:10250", "the address to listen on")
	node := flag.String("node", "node-1", "the name of the node")
	flag.Parse()
	log.Fatal(run(*address, *node))
}
