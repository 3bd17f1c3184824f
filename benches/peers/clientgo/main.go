// The measured program on client-go: a shared informer with its defaults, and the work queue.
//
// It has the same steps as the programs in Rust, see ../common, and prints its figures as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	indexName = "bench"
	// The pause between sync and reading the resident memory.
	settle = time.Second
	// The pause between checks whether a step is over.
	look = time.Millisecond
	// A handler that has not been called for this long has been called for everything.
	quiet = 200 * time.Millisecond
	// The time after which a step counts as hung.
	stepMax = 5 * time.Minute
	// The duration for which lookups are counted.
	lookups = 500 * time.Millisecond
)

func main() {
	server := flag.String("server", "", "address of the server")
	workload := flag.String("workload", "", "which objects it serves: custom or pods")
	strip := flag.Bool("strip", false, "drop managedFields before anything is stored")
	queue := flag.Bool("queue", false, "measure the work queue instead")
	flag.Parse()
	figures, err := map[string]float64{}, error(nil)
	if *queue {
		figures = measureQueue()
	} else {
		figures, err = measure(*server, *workload, *strip)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(figures)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newInformer makes an informer like that of a controller.
func newInformer(server, workload string) (cache.SharedIndexInformer, error) {
	config := &rest.Config{Host: "http://" + server}
	switch workload {
	case "pods":
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer(), nil
	case "custom":
		scheme := runtime.NewScheme()
		addToScheme(scheme)
		config.APIPath = "/apis"
		config.GroupVersion = &groupVersion
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, err
		}
		source := cache.NewListWatchFromClient(client, "databases", metav1.NamespaceAll, fields.Everything())
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return cache.NewSharedIndexInformer(source, &Database{}, 0, byNamespace), nil
	default:
		return nil, fmt.Errorf("there is no workload %q", workload)
	}
}

// indexValue is the indexed field.
func indexValue(object any) string {
	switch object := object.(type) {
	case *corev1.Pod:
		return object.Spec.NodeName
	case *Database:
		return object.Spec.Cluster
	default:
		return ""
	}
}

func version(object any) uint64 {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return 0
	}
	// A version that is no number is not from our server, and counts as zero.
	version, _ := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	return version
}

func stripManagedFields(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// heard counts the calls that the handler has received so far.
type heard struct {
	nEvents       atomic.Uint64
	newestVersion atomic.Uint64
}

// tell is called by one goroutine only.
func (h *heard) tell(object any) {
	h.nEvents.Add(1)
	if version := version(object); version > h.newestVersion.Load() {
		h.newestVersion.Store(version)
	}
}

// onceQuiet waits until the handler has also been called for the relist, which is no update, and returns the number of calls.
func (h *heard) onceQuiet() uint64 {
	for nEvents := h.nEvents.Load(); ; {
		time.Sleep(quiet)
		now := h.nEvents.Load()
		if now == nEvents {
			return now
		}
		nEvents = now
	}
}

func measure(server, workload string, strip bool) (map[string]float64, error) {
	facts, err := control(server, "reset")
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	var memoryErr error
	memory := func(figure, name string) {
		value, err := statusMB(name)
		memoryErr = errors.Join(memoryErr, err)
		figures[figure] = value
	}

	started := time.Now()
	informer, err := newInformer(server, workload)
	if err != nil {
		return nil, err
	}
	if strip {
		if err := informer.SetTransform(stripManagedFields); err != nil {
			return nil, err
		}
	}
	var heard heard
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { heard.tell(object) },
		UpdateFunc: func(_, object any) { heard.tell(object) },
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), stepMax)
	defer stop()
	go informer.RunWithContext(ctx)
	for !informer.HasSynced() || !registration.HasSynced() {
		if ctx.Err() != nil {
			return nil, errors.New("not synced")
		}
		time.Sleep(look)
	}
	figures["synced_s"] = time.Since(started).Seconds()
	cpu, err := cpuSeconds()
	if err != nil {
		return nil, err
	}
	figures["synced_cpu_s"] = cpu
	memory("peak_list_mb", "VmHWM:")
	time.Sleep(settle)
	memory("resident_mb", "VmRSS:")
	debug.FreeOSMemory()
	memory("resident_collected_mb", "VmRSS:")
	store := informer.GetIndexer()
	if n := len(store.ListKeys()); n != facts.Objects {
		return nil, fmt.Errorf("%d objects in the cache where %d should be", n, facts.Objects)
	}

	isAt := func(reference reference) bool {
		object, exists, getErr := store.GetByKey(reference.Namespace + "/" + reference.Name)
		return getErr == nil && exists && version(object) == reference.Version
	}
	nChanged := func() int {
		n := 0
		for _, object := range store.List() {
			if version(object) > facts.ListedVersion {
				n++
			}
		}
		return n
	}
	until := func(what string, isDone func() bool) error {
		for !isDone() {
			if ctx.Err() != nil {
				return fmt.Errorf("%s did not end", what)
			}
			time.Sleep(look)
		}
		return nil
	}
	// relist makes the server end the watch with 410, and records the peak of memory until the cache has reached last.
	relist := func(what, figure string, last reference) error {
		if _, err := control(server, "watching"); err != nil {
			return err
		}
		if err := resetPeak(); err != nil {
			return err
		}
		if _, err := control(server, "expire"); err != nil {
			return err
		}
		if err := until(what, func() bool { return isAt(last) }); err != nil {
			return err
		}
		memory(figure, "VmHWM:")
		return nil
	}
	if err := relist("the relist", "peak_relist_mb", facts.LastChanged); err != nil {
		return nil, err
	}
	if err := relist("the relist of changed objects", "peak_full_relist_mb", facts.LastReplaced); err != nil {
		return nil, err
	}
	if n := nChanged(); n != facts.Objects {
		return nil, fmt.Errorf("%d changed objects where %d should be", n, facts.Objects)
	}

	if _, err := control(server, "watching"); err != nil {
		return nil, err
	}
	nBefore := heard.onceQuiet()
	cpuBefore, err := cpuSeconds()
	if err != nil {
		return nil, err
	}
	started = time.Now()
	if _, err := control(server, "updates"); err != nil {
		return nil, err
	}
	err = until("the updates", func() bool {
		return heard.newestVersion.Load() == facts.LastUpdated.Version && isAt(facts.LastUpdated)
	})
	if err != nil {
		return nil, err
	}
	figures["updates_per_s"] = float64(facts.Updates) / time.Since(started).Seconds()
	if cpu, err = cpuSeconds(); err != nil {
		return nil, err
	}
	figures["update_cpu_us"] = (cpu - cpuBefore) / float64(facts.Updates) * 1e6
	figures["updates_heard_percent"] = float64(heard.nEvents.Load()-nBefore) / float64(facts.Updates) * 100
	if n := nChanged(); n != facts.Objects {
		return nil, fmt.Errorf("%d updated objects where %d should be", n, facts.Objects)
	}

	byField := func(object any) ([]string, error) { return []string{indexValue(object)}, nil }
	if err := informer.AddIndexers(cache.Indexers{indexName: byField}); err != nil {
		return nil, err
	}
	values := store.ListIndexFuncValues(indexName)
	if len(values) == 0 {
		return nil, errors.New("the index is empty")
	}
	objects := func(value string) (int, error) {
		found, err := store.ByIndex(indexName, value)
		return len(found), err
	}
	keys := func(value string) (int, error) {
		found, err := store.IndexKeys(indexName, value)
		return len(found), err
	}
	for figure, lookup := range map[string]func(string) (int, error){"lookups_per_s": objects, "key_lookups_per_s": keys} {
		if figures[figure], err = lookupsPerSecond(values, lookup); err != nil {
			return nil, err
		}
	}
	return figures, memoryErr
}

func lookupsPerSecond(values []string, lookup func(string) (int, error)) (float64, error) {
	started, nLookups := time.Now(), 0
	for ; time.Since(started) < lookups; nLookups++ {
		n, err := lookup(values[nLookups%len(values)])
		if err != nil || n == 0 {
			return 0, fmt.Errorf("a lookup found %d objects: %w", n, err)
		}
	}
	return float64(nLookups) / time.Since(started).Seconds(), nil
}
